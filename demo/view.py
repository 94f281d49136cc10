"""Output while the mirror works: a progress bar, then a live screen; without a terminal, some lines of text.

The screen reads the shop's writes and the lake's position while both grow. It shows figures (written, in the lake,
rates, lag) and the state of each table. When the mirror has applied a special change, the screen prints a line.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from demo.written import covers

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from demo.lake import Lake
    from demo.written import Written

REFRESH_S: Final = 0.25
LINE_EVERY_S: Final = 5.0
RATE_OVER_S: Final = 10.0
"""Seconds over which a rate is computed. Batches arrive every few seconds, so a rate over less time would jump."""
SPARKS: Final = "▁▂▃▄▅▆▇█"
SPARK_SAMPLES: Final = 160
STATES: Final = {"current": "green", "reading": "yellow", "failed": "red"}


def thousands(number: float) -> str:
    """Return a rounded number with spaces between groups of three digits."""
    return f"{number:,.0f}".replace(",", " ")


class Meter:
    """Meter of a growing number of rows: the rate over RATE_OVER_S, and a small curve of the last samples."""

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
        samples = [rows for _, rows in list(self._samples)[:: max(1, SPARK_SAMPLES // 20)]]
        steps = [after - before for before, after in itertools.pairwise(samples)]
        top = max([*steps, 1])
        return "".join(SPARKS[min(step * len(SPARKS) // (top + 1), len(SPARKS) - 1)] for step in steps)


class LoadBar:
    """Progress of the initial load: `with LoadBar(...) as bar: bar.show(rows)`."""

    def __init__(self, console: Console, rows: int) -> None:
        self._rows = rows
        self._begin = time.monotonic()
        self._said = ""
        self._console = console
        words = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[told]}")
        self._bar = Progress(*words, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("the tables into the lake", total=rows, told="")

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.__exit__(None, None, None)

    def show(self, rows: int) -> None:
        """Show the number of rows that are in the lake."""
        seconds = time.monotonic() - self._begin
        told = f"{thousands(rows)} of {thousands(self._rows)} rows" if rows else "Spark makes the tables"
        self._bar.update(self._task, completed=rows, told=told)
        if self._bar.disable and told != self._said:
            self._said = told
            self._console.print(f"{seconds:4.0f} s   {told}", highlight=False)


class Screen:
    """Live screen: `with Screen(...) as screen: screen.update()`. `update` may be called at any rate.

    Without a terminal, `update` prints a line only every LINE_EVERY_S seconds.
    """

    def __init__(self, console: Console, written: Written, lake: Lake, *, title: str, seconds: float) -> None:
        self._console = console
        self._written = written
        self._lake = lake
        self._title = title
        self._seconds = seconds
        self._begin = time.monotonic()
        self._meters = Meter(), Meter()
        self._followed = 0
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

    @property
    def _arrived(self) -> int:
        return self._written.reached(self._lake.position).rows

    def update(self) -> None:
        for meter, rows in zip(self._meters, (self._written.rows, self._arrived), strict=True):
            meter.sample(rows)
        self._tell_followed()
        if self._live:
            self._live.update(self._render())
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE_EVERY_S  # so that a long pause is not followed by many lines
            self._print_line()

    def _tell_followed(self) -> None:
        """Print a line for each special change once all tables are current after it."""
        while self._followed < len(self._written.told) and self._lake.whole:
            gtid, sent, told = self._written.told[self._followed]
            if not covers(self._lake.position, gtid):
                break
            self._followed += 1
            self._console.print(
                f"[green]✓[/] {told}: in the lake {self._lake.ended - sent:.1f} s later", highlight=False
            )

    def _print_line(self) -> None:
        written, arrived = self._written.rows, self._arrived
        self._console.print(
            f"{time.monotonic() - self._begin:4.0f} s   written {thousands(written):>7}   "
            f"in the lake {thousands(arrived):>7}   {thousands(self._meters[1].rate):>6} rows/s   "
            f"{self._lag()} behind",
            highlight=False,
        )

    def _lag(self) -> str:
        since = self._written.reached(self._lake.position).waiting_since
        return f"{0.0 if since is None else time.time() - since:.1f} s"

    # -- the live screen -------------------------------------------------------------------------------------------

    def _render(self) -> RenderableType:
        elapsed = time.monotonic() - self._begin
        clock = f"{elapsed:.0f} s of {self._seconds:.0f} s" if elapsed < self._seconds else "the last rows arrive"
        figures = Panel(self._figures(), title=self._title, subtitle=clock, border_style="blue")
        return Group(figures, Panel(self._tables(), title="the mirror's control table", border_style="blue"))

    def _figures(self) -> RenderableType:
        written, arrived = self._written.rows, self._arrived
        grid = Table.grid(padding=(0, 2), expand=True)
        for justify in ("left", "right", "right"):
            grid.add_column(justify=justify, no_wrap=True)
        grid.add_column(ratio=1)  # the column that shrinks on a narrow terminal
        for name, rows, meter in zip(
            ("changes in MariaDB", "changes in the lake"), (written, arrived), self._meters, strict=True
        ):
            grid.add_row(
                name, f"[bold]{thousands(rows)}[/] rows", f"{thousands(meter.rate)} rows/s", f"[cyan]{meter.curve}"
            )
        batches = f"{self._lake.batches} micro-batches, one commit a table"
        grid.add_row("on the way", f"{thousands(max(0, written - arrived))} rows", f"{self._lag()} behind", batches)
        return grid

    def _tables(self) -> RenderableType:
        grid = Table(box=None, expand=True, header_style="dim")
        for name in ("table", "target", "state", "rows read and changed", "at GTID position"):
            grid.add_column(name, no_wrap=True, overflow="ellipsis", justify="right" if "rows" in name else "left")
        for row in self._lake.tables:
            grid.add_row(*_cells(row))
        return grid


def _cells(row: Any) -> tuple[str, ...]:
    state = f"[{STATES.get(row.state, 'red')}]{row.state}[/]"
    name = f"{row.source_database}.{row.source_table}"
    return name, row.target.replace("`", ""), state, thousands(row.rows), row.position
