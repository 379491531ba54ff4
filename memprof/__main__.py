"""``python -m memprof`` is the command line."""

from __future__ import annotations

from memprof.cli import main

if __name__ == "__main__":
    main()
