"""Cases of `truth_runs`, by kind; each module has its ``CASES``."""
