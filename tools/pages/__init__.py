"""Generators of the docs pages that are made from the code: `python -m tools.pages.events > docs/events.md`."""
