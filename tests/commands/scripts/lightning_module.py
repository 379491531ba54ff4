"""A LightningModule under Lightning's Trainer: nothing in it knows of memprof."""

# ruff: noqa: T201, D, ANN  # a script

import tempfile

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.1, batch_first=True, norm_first=True)
        self.embed = nn.Linear(64, 256)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).mean(dim=1))

    def training_step(self, batch, _index):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y, label_smoothing=0.1)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _index):
        x, y = batch
        self.log("accuracy", (self(x).argmax(dim=1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


lightning.seed_everything(1)
data = DataLoader(TensorDataset(torch.randn(128, 100, 64), torch.randint(0, 10, (128,))), batch_size=32)
trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="gpu",
    devices=1,
    precision="bf16-mixed",
    gradient_clip_val=1.0,
    accumulate_grad_batches=2,
    logger=False,
    enable_progress_bar=False,
    default_root_dir=tempfile.mkdtemp(),
)
trainer.fit(Classifier(), data, data)
print("peak", torch.cuda.max_memory_allocated())
