"""Functions from values to values: timeline, breakdown and what is built on them. No torch, no formatting."""
