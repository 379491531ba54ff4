"""Embedding and index gradients."""

from __future__ import annotations

__all__: list[str] = []
