"""A vision transformer under Lightning's Trainer, with validation. Nothing in it knows of memprof.

memprof run -o run.pickle examples/lightning_trainer.py
"""

import argparse
import tempfile

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=384)
parser.add_argument("--layers", type=int, default=6)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--batches", type=int, default=3)
args = parser.parse_args()


class VisionTransformer(lightning.LightningModule):
    def __init__(self, width, layers, classes=100):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.position = nn.Parameter(torch.zeros(1, 196, width))
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.position
        return self.head(self.encoder(x).mean(dim=1))

    def training_step(self, batch, _):
        images, classes = batch
        loss = nn.functional.cross_entropy(self(images), classes)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        images, classes = batch
        self.log("accuracy", (self(images).argmax(dim=1) == classes).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


lightning.seed_everything(0, verbose=False)
count = args.batch * args.batches
data = TensorDataset(torch.randn(count, 3, 224, 224), torch.randint(0, 100, (count,)))
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        max_epochs=1,
        precision="bf16-mixed",
        limit_val_batches=1,
        gradient_clip_val=1.0,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train, validate = DataLoader(data, args.batch, shuffle=True), DataLoader(data, args.batch)
    trainer.fit(VisionTransformer(args.width, args.layers), train, validate)
print(f"accuracy {float(trainer.callback_metrics['accuracy']):.3f}")
