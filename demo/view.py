"""The terminal while rows arrive: a live screen, or a line every other second where there is no terminal.

In: the writer's and the stream's counters, read while they grow. Out: figures (written, arrived, rates, delay) and the
newest change rows in words: what was inserted or deleted, and for updates only the columns that changed.
"""

from __future__ import annotations

import datetime as dt
import itertools
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.shop import KEYS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from demo.replay import Change
    from demo.shop import Written
    from demo.stream import Arrived

REFRESH_S = 0.25
LINE_EVERY_S = 2.0
RATE_OVER_S = 2.0
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_SAMPLES = 24
FRAME_LINES = 12  # lines of the screen that are not change rows
COLOURS = {"insert": "green", "update": "yellow", "delete": "red"}


def short(value: object) -> str:
    """Shorten a value as a person wants to see it in passing: sizes for bytes, texts cut, times to the millisecond."""
    if isinstance(value, (bytes, bytearray)):
        size = len(value)
        return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "milliseconds")
    text = "NULL" if value is None else str(value)
    return text if len(text) <= 28 else f"{text[:27]}…"


def describe(change: Change) -> str:
    """Describe the change in words: the changed columns of an update, the row of an insert or delete; without the
    key.
    """
    before, after, key = change.before or {}, change.after or {}, KEYS[change.table]
    if change.op == "update":
        return ", ".join(
            f"{name} {short(before.get(name))} → {short(value)}"
            for name, value in after.items()
            if before.get(name) != value
        )
    row = {name: value for name, value in (after or before).items() if value is not None and name not in key}
    return ", ".join(f"{name} {short(value)}" for name, value in row.items())


def key_of(change: Change) -> str:
    row = change.after or change.before or {}
    return "-".join(str(row.get(name)) for name in KEYS[change.table])


def thousands(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


class Meter:
    """Rows a second over the last two seconds, and a small curve of the last samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=SPARK_SAMPLES + 1)

    def sample(self, rows: int) -> None:
        self._samples.append((time.monotonic(), rows))

    @property
    def rate(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        last = self._samples[-1]
        first = next(sample for sample in self._samples if last[0] - sample[0] <= RATE_OVER_S)
        return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0

    @property
    def curve(self) -> str:
        samples = list(self._samples)
        steps = [after[1] - before[1] for before, after in itertools.pairwise(samples)]
        top = max([*steps, 1])
        return "".join(SPARKS[min(step * len(SPARKS) // (top + 1), len(SPARKS) - 1)] for step in steps)


class Screen:
    """`with Screen(...) as screen: screen.update()` as often as one likes; it shows what is due."""

    def __init__(self, console: Console, written: Written, arrived: Arrived, *, title: str, seconds: float) -> None:
        self._console = console
        self._written = written
        self._arrived = arrived
        self._title = title
        self._seconds = seconds
        self._begin = time.monotonic()
        self._meters = Meter(), Meter()
        self._live: Live | None = None
        self._due = self._begin + LINE_EVERY_S

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(self._render(), console=self._console, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live:
            self._live.__exit__(None, None, None)

    def update(self) -> None:
        for meter, rows in zip(self._meters, (self._written.rows, self._arrived.rows), strict=True):
            meter.sample(rows)
        if self._live:
            self._live.update(self._render())
        elif time.monotonic() >= self._due:
            self._due += LINE_EVERY_S
            self._print_line()

    def _print_line(self) -> None:
        written, arrived = self._written.rows, self._arrived.rows
        delay = f"{self._arrived.delays[-1]:.1f}" if self._arrived.delays else "-"
        self._console.print(
            f"{time.monotonic() - self._begin:4.0f} s   written {thousands(written):>8}   "
            f"arrived {thousands(arrived):>8}   {thousands(self._meters[1].rate):>6} rows/s   "
            f"{delay:>4} s behind commit   {self._arrived.batches} batches",
            highlight=False,
        )

    # -- the live screen -------------------------------------------------------------------------------------------

    def _render(self) -> RenderableType:
        elapsed = time.monotonic() - self._begin
        clock = f"{elapsed:.0f} s of {self._seconds:.0f} s" if elapsed < self._seconds else "the last rows arrive"
        figures = Panel(self._figures(), title=self._title, subtitle=clock, border_style="blue")
        return Group(figures, Panel(self._changes(), title="newest changes, as Spark sees them", border_style="blue"))

    def _figures(self) -> RenderableType:
        written, arrived = self._written, self._arrived
        grid = Table.grid(padding=(0, 2), expand=True)
        for justify in ("left", "right", "right"):
            grid.add_column(justify=justify, no_wrap=True)
        grid.add_column(ratio=1)  # the one that gives way on a narrow terminal
        for name, rows, meter in zip(
            ("written to MariaDB", "arrived in Spark"), (written.rows, arrived.rows), self._meters, strict=True
        ):
            grid.add_row(
                name, f"[bold]{thousands(rows)}[/] rows", f"{thousands(meter.rate)} rows/s", f"[cyan]{meter.curve}"
            )
        delay = f"{arrived.delays[-1]:.1f} s old" if arrived.delays else ""
        operations = "  ".join(f"[{COLOURS[op]}]{op} {thousands(n)}[/]" for op, n in sorted(arrived.operations.items()))
        behind = max(0, written.rows - arrived.rows)
        grid.add_row("on the way", f"{thousands(behind)} rows", delay, operations)
        grid.add_row("micro-batches", thousands(arrived.batches), "", self._specials())
        return grid

    def _specials(self) -> str:
        image = "[green]✓ 17 MB image[/]" if self._written.big_image else "[dim]· 17 MB image[/]"
        ddl = "[green]✓ ALTER TABLE[/]" if self._written.ddl else "[dim]· ALTER TABLE[/]"
        return f"{image}  {ddl}"

    def _changes(self) -> RenderableType:
        room = max(4, self._console.height - FRAME_LINES)
        with self._arrived.lock:
            newest = list(self._arrived.newest)[-room:]
        grid = Table.grid(padding=(0, 2), expand=True)
        for ratio in (None, None, None, None, 1):
            grid.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        for change in newest:
            domain, server, sequence, _ = change.identity
            operation = Text(change.op, style=COLOURS[change.op])
            gtid = Text(f"{domain}-{server}-{sequence}", style="dim")
            grid.add_row(
                gtid, operation, Text(change.table), Text(key_of(change), style="bold"), Text(describe(change))
            )
        return grid
