"""One page of HTML about a mirror, `mirror_report()`: lag and rows over time, states with reasons, the last audits.

The page has no scripts and loads nothing from a network, so it can be mailed and opened anywhere. It is light or dark
as its reader prefers. Each text from a server is escaped by `status_table.text`.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import os
import statistics
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError
from replica.schema.patterns import table_text
from streaming_source.auditing.mirror.records import EQUAL, REPAIRED, SUFFIX, table_beside
from streaming_source.mirroring.control.control_history import control_history, rows_a_second
from streaming_source.mirroring.control.control_table import control_of
from streaming_source.mirroring.control.status import audits_of
from streaming_source.mirroring.control.status_table import counted, seconds_text, shown_name, status_table, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from streaming_source.mirroring.control.control_history import Moment

MOST_AUDITS: Final = 10
MOST_FINDINGS: Final = 200
"""Most audits on the page, and most tables that an audit did not find equal."""
_GAP_S: Final = 60.0
"""Seconds without a micro-batch after which a line may be interrupted: the mirror did not run."""
_GAPS: Final = 10
"""A line is interrupted after so many times the usual time between two points."""
_HEIGHT: Final = 100
_WIDTH: Final = 1000
_STEPS: Final = (1, 2, 5, 10)
"""Leading digits of the largest value of an axis."""

_STYLE: Final = """\
:root{color-scheme:light dark;--page:#fff;--text:#1b1f24;--line:#2f6fb0;--soft:#2f6fb022;--grid:#8884;--card:#f6f7f9}
@media (prefers-color-scheme:dark){:root{--page:#15181c;--text:#e4e7eb;--line:#6cb0f2;--soft:#6cb0f222;--card:#1d2127}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2em 1.2em 3em;max-width:76em;background:var(--page);color:var(--text);\
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.35em;margin:.2em 0;overflow-wrap:anywhere}h2{font-size:1.05em;margin:1.6em 0 .5em}
.about{opacity:.75;margin:0 0 1em;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26em),1fr));gap:1em}
figure{margin:0;padding:.8em 1em;background:var(--card);border-radius:8px;min-width:0}
figcaption{display:flex;justify-content:space-between;gap:1em;font-weight:600}
figcaption span{font-weight:400;opacity:.75;text-align:right}
.plot{position:relative;height:9em;margin:.9em 0 .2em 3.6em}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.plot small{position:absolute;right:calc(100% + .7em);opacity:.7;font-size:.75em;line-height:1;white-space:nowrap}
.times{display:flex;justify-content:space-between;gap:1em;font-size:.75em;opacity:.7;margin-left:4.8em}
.audits{border-collapse:collapse;font-size:.9em}
.audits th,.audits td{text-align:left;vertical-align:top;padding:.3em 1em .3em 0;border-bottom:1px solid var(--grid)}
.audits td{overflow-wrap:anywhere}
.wrong{color:#d64545;font-weight:600}
.mb-scroll{max-height:none!important}
"""


class _Series(NamedTuple):
    """Values over time, and how to print one."""

    title: str
    points: Sequence[tuple[dt.datetime, float]]
    unit: str


def mirror_report(
    spark: SparkSession,
    *,
    file: str | os.PathLike[str],
    into: str | None = None,
    control: str | None = None,
    icebergCatalog: str | Mapping[str, str] | None = None,  # noqa: N803
) -> Path:
    """Write a page of HTML about a mirror, which a browser shows without a network.

    The page has lag and rows per second over the last hour or more, the state of each table, and the last audits. The
    mirror may run or be stopped.

    Args:
        spark: a session that sees the control table.
        file: the file to write, on the disk of the driver. An existing file is replaced.
        into: the template that the mirror was started with. Not needed with `control`.
        control: the name of the control table of the mirror.
        icebergCatalog: the catalog of a mirror with `format="iceberg"`, as `mirror` takes it. A process that has called
            `mirror` already knows the catalog.

    Returns:
        The path of the file.

    Raises:
        ConfigError: neither `into` nor `control` is given, there is no such control table, or the file cannot be
            written.
    """
    name, rows = control_of(spark, "mirror_report", into, control, icebergCatalog)
    now = dt.datetime.now(dt.UTC)
    moments = control_history(spark, name, rows)
    title = shown_name(name)
    body = (
        f"<h1>Mirror {text(title)}</h1>"
        f"<p class='about'>Written at {_clock(now)} UTC, from {counted(len(moments), 'state')} of the control table."
        f"</p><div class='charts'>{''.join(map(_chart, _series(moments)))}</div>"
        f"<h2>Tables</h2>{status_table(rows, audits_of(spark, name), now, title='')}"
        f"<h2>Audits</h2>{_audits(spark, name)}"
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    page = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<title>Mirror {text(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )
    return _written(Path(os.fspath(file)), page)


def _written(file: Path, page: str) -> Path:
    """Write the page in one step."""
    hidden = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        hidden.write_text(page, encoding="utf-8")
        hidden.replace(file)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise ConfigError(
            f"the page cannot be written to {file}: {error.strerror}.", hint="Name a file in a folder that exists."
        ) from None
    return file


def _series(moments: Sequence[Moment]) -> list[_Series]:
    lag = [(one.at, one.lag) for one in moments if one.lag is not None]
    rates = [(after.at, rows_a_second(before, after)) for before, after in itertools.pairwise(moments)]
    return [_Series("Lag", lag, "s"), _Series("Rows and changes per second", rates, "")]


def _chart(series: _Series) -> str:
    """Return a line over time. The labels are text beside the picture, so they keep their size on a small screen."""
    if not series.points:
        return f"<figure><figcaption>{series.title}</figcaption><p>There are no values yet.</p></figure>"
    first, last = series.points[0][0], series.points[-1][0]
    span = max(1.0, (last - first).total_seconds())
    most = max(value for _, value in series.points)
    top = _axis(most)
    places = [
        (_WIDTH * (at - first).total_seconds() / span, _HEIGHT * (1 - value / top)) for at, value in series.points
    ]
    marks = "".join(
        f"<circle cx='{x:.1f}' cy='{y:.1f}' r='.01' stroke-width='9' stroke-linecap='round' class='m'>"
        f"<title>{_clock(at)}: {_value(value, series.unit)}</title></circle>"
        for (x, y), (at, value) in zip(places, series.points, strict=True)
    )
    grid = "".join(f"<path d='M0 {y}H{_WIDTH}' stroke='var(--grid)' stroke-width='1'/>" for y in (0, 50, _HEIGHT))
    lines = "".join(_line(part) for part in _parts(series.points, places))
    svg = (
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' preserveAspectRatio='none' role='img' aria-label='{series.title}'>"
        "<style>path,circle{vector-effect:non-scaling-stroke}.m{stroke:transparent}.m:hover{stroke:var(--line)}</style>"
        f"{grid}{lines}{marks}</svg>"
    )
    labels = (
        f"<small style='top:-.5em'>{_value(top, series.unit)}</small>"
        f"<small style='top:calc(50% - .5em)'>{_value(top / 2, series.unit)}</small>"
    )
    times = f"<div class='times'><span>{_clock(first)}</span><span>{_clock(last)} UTC</span></div>"
    now = f"<span>now {_value(series.points[-1][1], series.unit)}, most {_value(most, series.unit)}</span>"
    caption = f"<figcaption>{series.title}{now}</figcaption>"
    return f"<figure>{caption}<div class='plot'>{svg}{labels}</div>{times}</figure>"


def _axis(most: float) -> float:
    """Return the end of an axis: the next round number."""
    if most <= 0:
        return 1.0
    size: float = 10.0 ** math.floor(math.log10(most))
    return next(step * size for step in _STEPS if step * size >= most)


def _parts(
    points: Sequence[tuple[dt.datetime, float]], places: Sequence[tuple[float, float]]
) -> list[list[tuple[float, float]]]:
    """Divide a line where the mirror did not run."""
    steps = [(after - before).total_seconds() for (before, _), (after, _) in itertools.pairwise(points)]
    longest = max(_GAP_S, _GAPS * statistics.median(steps)) if steps else _GAP_S
    parts = [[places[0]]]
    for place, step in zip(places[1:], steps, strict=True):
        if step > longest:
            parts.append([])
        parts[-1].append(place)
    return parts


def _line(places: Sequence[tuple[float, float]]) -> str:
    if len(places) == 1:
        x, y = places[0]
        return f"<path d='M{x:.1f} {y:.1f}h.01' stroke='var(--line)' stroke-width='5' stroke-linecap='round'/>"
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    area = f"M{line}L{places[-1][0]:.1f} {_HEIGHT}L{places[0][0]:.1f} {_HEIGHT}Z"
    return (
        f"<path d='{area}' fill='var(--soft)'/>"
        f"<path d='M{line}' fill='none' stroke='var(--line)' stroke-width='2' stroke-linejoin='round'/>"
    )


def _value(value: float, unit: str) -> str:
    if unit == "s":
        return seconds_text(value)
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _clock(at: dt.datetime) -> str:
    return f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}"


def _audits(spark: SparkSession, control: str) -> str:
    """Return the last audits, and the tables that the last one did not find equal."""
    from pyspark.sql import functions as f

    table = table_beside(spark, control, SUFFIX)
    if table is None:
        return "<p>There was no audit yet.</p>"
    micros = f.unix_micros("audited_at").alias("at")
    counts = table.groupBy(micros, "audit").count().orderBy(f.desc("at"), "audit").limit(8 * MOST_AUDITS).collect()
    by_time: dict[int, list[tuple[str, int]]] = {}
    for row in counts:
        by_time.setdefault(row["at"], []).append((row["audit"], row["count"]))
    if not by_time:
        return "<p>There was no audit yet.</p>"
    lines = "".join(
        f"<tr><td>{_clock(_moment(at))}</td><td>{'; '.join(_counted(*one) for one in found)}</td></tr>"
        for at, found in list(by_time.items())[:MOST_AUDITS]
    )
    wrong = (
        table.where((micros == max(by_time)) & ~f.col("audit").isin(EQUAL, REPAIRED))
        .select("source_database", "source_table", "audit", "reason", f.to_json("counts").alias("counts"))
        .orderBy("source_database", "source_table")
        .limit(MOST_FINDINGS)
        .collect()
    )
    findings = "".join(
        f"<tr><td>{text(table_text((row['source_database'], row['source_table'])))}</td><td>{text(row['audit'])}</td>"
        f"<td>{text(row['reason'] or row['counts'] or '')}</td></tr>"
        for row in wrong
    )
    last = f"<h2>Not equal in the last audit</h2><table class='audits'>{findings}</table>" if findings else ""
    return f"<table class='audits'><tr><th>ended (UTC)</th><th>tables</th></tr>{lines}</table>{last}"


def _counted(result: str, count: int) -> str:
    shown = f"{count:,} {text(result)}"
    return shown if result in (EQUAL, REPAIRED) else f"<span class='wrong'>{shown}</span>"


def _moment(micros: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(micros / 1_000_000, dt.UTC)
