"""Entry point of `python -m replica`, which runs `mariadb-replica`."""

from __future__ import annotations

from replica.commands.cli import main

if __name__ == "__main__":
    main()
