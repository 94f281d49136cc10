"""Terminal colours by meaning, from the sixteen basic colours that are readable on dark and light backgrounds.

Without colours, every function returns its text unchanged. No information depends on colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

When = Literal["auto", "always", "never"]

_OPERATIONS = {"insert": "green", "update": "yellow", "delete": "red"}


def wanted(when: When, environment: Mapping[str, str], *, terminal: bool) -> bool:
    """Return True if the output is coloured; `auto` requires a terminal, no NO_COLOR, and a TERM other than dumb."""
    if when != "auto":
        return when == "always"
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


@dataclass(frozen=True, slots=True)
class Colours:
    on: bool

    def operation(self, word: str) -> str:
        return self._style(word, fg=_OPERATIONS.get(word, "magenta"), bold=True)

    def gtid(self, text: str) -> str:
        return self._style(text, fg="cyan", bold=True)

    def table(self, text: str) -> str:
        return self._style(text, bold=True)

    def column(self, text: str) -> str:
        return self._style(text, dim=True)

    def key(self, text: str) -> str:
        return self._style(text, bold=True)

    def old(self, text: str) -> str:
        return self._style(text, fg="red")

    def new(self, text: str) -> str:
        return self._style(text, fg="green")

    def good(self, text: str) -> str:
        return self._style(text, fg="green", bold=True)

    def bad(self, text: str) -> str:
        return self._style(text, fg="red", bold=True)

    def statement(self, text: str) -> str:
        return self._style(text, fg="magenta")

    def faint(self, text: str) -> str:
        return self._style(text, dim=True)

    def plain(self, text: str) -> str:
        return text

    def _style(self, text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
        return click.style(text, fg=fg, bold=bold, dim=dim) if self.on else text
