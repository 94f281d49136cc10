"""Run the program: `python -m streaming_source.auditing audit.toml`."""

from __future__ import annotations

from streaming_source.auditing.program import main

if __name__ == "__main__":
    main()
