"""Runs at the edge: expandable segments, and the batch at which a capped card is full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from prediction_runs import _quantize
from wider_runs import largest_batch, llama, token_loss, train

from truth_cases.language import causal
from truth_cases.lora import adapted
from truth_cases.vision import basic_resnet, class_loss, unet, unet_loss

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


@case
def llama_expandable() -> None:
    """Train under expandable segments, which the script sets before torch is there."""
    growing_llama()


@case
def llama_not_expandable() -> None:
    """Do the same without."""
    growing_llama()


def growing_llama() -> None:
    """Train on batches that get longer and longer: what expandable segments are for."""
    model = llama()
    optimizer = torch.optim.AdamW(model.parameters())
    for length in (200, 333, 512, 700, 900):
        train(model, optimizer, token_loss(model, 4, length), steps=1)


@case
def unet_expandable() -> None:
    """Train a U-Net under expandable segments."""
    growing_unet()


@case
def unet_not_expandable() -> None:
    """Do the same without."""
    growing_unet()


def growing_unet() -> None:
    """Train on images that get larger and larger."""
    model = unet(32)
    optimizer = torch.optim.AdamW(model.parameters())
    for side in (96, 128, 160, 224, 256):
        train(model, optimizer, unet_loss(model, 8, side), steps=1)


@case
def neox_lora_expandable() -> None:
    """Train adapters under expandable segments."""
    growing_adapters()


@case
def neox_lora_not_expandable() -> None:
    """Do the same without."""
    growing_adapters()


def growing_adapters() -> None:
    """Train adapters on a 4-bit model with batches that grow and shrink."""
    model = causal("GPTNeoX", dtype=torch.bfloat16).cpu()
    _quantize(model)
    model = adapted(model.cuda(), ["query_key_value"])
    optimizer = torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)
    for batch, length in ((2, 300), (3, 700), (4, 450), (6, 900), (2, 1200)):
        train(model, optimizer, token_loss(model, batch, length), steps=1)


@case
def oom_resnet() -> int:
    """Find the batch size at which a capped card is full, for a ResNet-18."""
    model = basic_resnet((2, 2, 2, 2))
    return largest_batch(lambda: (model, lambda n: class_loss(model, n, 224)()))


@case
def oom_neox_lora_nf4() -> int:
    """Find the batch size at which a capped card is full, for adapters on a 4-bit model."""
    model = causal("GPTNeoX", dtype=torch.bfloat16).cpu()
    _quantize(model)
    model = adapted(model.cuda(), ["query_key_value"])
    return largest_batch(lambda: (model, lambda n: token_loss(model, n, 256)()))
