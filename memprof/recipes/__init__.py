"""Recipes: each builds a model, an optimizer, batches and a training step. Imports torch."""
