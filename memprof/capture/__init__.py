"""The recorder: labels, allocator history and profiler around real training steps. Imports torch."""
