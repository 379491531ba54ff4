"""A loop with accelerate around a BERT classifier: nothing in it knows of memprof."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_scheduler

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
config = BertConfig(num_hidden_layers=3, hidden_size=256, num_attention_heads=4, intermediate_size=1024)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
samples = [
    {
        "input_ids": torch.randint(0, 30000, (128,)),
        "attention_mask": torch.ones(128, dtype=torch.int64),
        "labels": torch.tensor(index % 2),
    }
    for index in range(64)
]
loader = DataLoader(samples, batch_size=16, shuffle=True)
scheduler = get_scheduler("linear", optimizer, num_warmup_steps=2, num_training_steps=8)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for _epoch in range(2):
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    model.eval()
    right = 0
    for batch in loader:
        with torch.no_grad():
            answers = model(**batch).logits.argmax(dim=-1)
        answers, labels = accelerator.gather_for_metrics((answers, batch["labels"]))
        right += (answers == labels).sum().item()
    model.train()
    accelerator.print("right", right >= 0)
accelerator.print("peak", torch.cuda.max_memory_allocated())
