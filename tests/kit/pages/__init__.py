"""Pages of docs/ that are made from the code: `python -m tests.kit.pages.events > docs/events.md`, and so on."""
