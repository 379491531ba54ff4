"""PyTorch's caching allocator: its rules, once, and the engines on them."""
