"""Colours of a terminal by what they mean: sixteen colours, so that dark and light backgrounds both keep them readable.

Without colours, every function gives its text back. Words never depend on them: `insert` says so in letters too.
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
    """Tell whether to colour: `auto` asks the terminal, and NO_COLOR and TERM=dumb as programs do."""
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
