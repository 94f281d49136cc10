"""HTML table of a mirror's tables, for notebooks and for the page of `mirror_report`.

`status_table` returns one fragment of HTML without scripts and without addresses of a network. All its classes begin
with `mb-`. It takes the text colour of its surroundings, so it can be read on light and dark pages. Names and reasons
come from a server: each one is escaped, and control characters and marks of text direction are shown as escapes.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.protocol.plain_text import one_line
from replica.schema.patterns import table_text
from streaming_source.auditing.mirror.records import DIFFERENT, NOT_REPAIRED
from streaming_source.mirroring.control.states import State, state_of
from streaming_source.sinks.delta import path_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_table import ControlRow

MOST_ROWS: Final = 1000
"""Most tables in one fragment. A notebook stores the fragment, about 500 bytes for each table."""
LONGEST_NAME: Final = 80
LONGEST_REASON: Final = 600
"""Most characters of a name and of a reason."""
_DIRECTIONS: Final = re.compile("[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_WORDS: Final = {
    State.SUSPENDED: "suspended",
    State.RETRIED: "retried",
    State.WAITING: "waiting",
    State.READING: "reading",
    State.CURRENT: "current",
    State.DROPPED: "dropped",
}
"""Word for each state. Its order is that of the rows: what needs attention comes first."""
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400

STYLE: Final = """\
.mb-status{font:14px/1.45 system-ui,sans-serif;text-align:left;max-width:100%}
.mb-status *{box-sizing:border-box}
.mb-head{display:flex;flex-wrap:wrap;gap:.2em 1.4em;margin:.3em 0 .6em}
.mb-head b{font-size:1.15em}
.mb-bar{display:flex;height:8px;border-radius:4px;overflow:hidden;margin:.3em 0 .6em;background:#8883}
.mb-bar i{display:block;height:8px;min-width:3px}
.mb-scroll{max-height:28em;overflow:auto;border:1px solid #8885;border-radius:6px}
.mb-status table{border-collapse:collapse;width:100%;margin:0;font-size:13px;color:inherit;background:transparent}
.mb-status tr{background:transparent}
.mb-status th,.mb-status td{padding:.35em .7em;text-align:left;vertical-align:top;border:0;white-space:nowrap;\
max-width:none}
.mb-status tr+tr td{border-top:1px solid #8883}
.mb-status thead th{font-weight:600;border-bottom:1px solid #8885}
.mb-status td.mb-number,.mb-status th.mb-number{text-align:right;font-variant-numeric:tabular-nums}
.mb-status td.mb-name{white-space:normal;overflow-wrap:anywhere;min-width:9em}
.mb-status td.mb-why{white-space:normal;overflow-wrap:anywhere;padding-top:0;border-top:0}
.mb-why div{border-left:3px solid #c4820e;padding-left:.7em;max-width:60em}
.mb-suspended+.mb-reason div{border-color:#d64545}
.mb-state{white-space:nowrap}
.mb-state:before{content:"";display:inline-block;width:.65em;height:.65em;border-radius:50%;margin-right:.45em;\
background:var(--mb)}
.mb-fill{display:inline-block;width:5em;height:.5em;border-radius:3px;background:#8883;margin-left:.6em;\
vertical-align:middle}
.mb-fill i{display:block;height:100%;border-radius:3px;background:#3b82c4}
.mb-suspended{--mb:#d64545}.mb-retried,.mb-waiting{--mb:#c4820e}.mb-reading{--mb:#3b82c4}
.mb-current{--mb:#2f9e5f}.mb-dropped{--mb:#8a8f98}
.mb-bar i{background:var(--mb)}
.mb-wrong{font-weight:600;color:#d64545}
.mb-muted{opacity:.7}
@media (max-width:40em){.mb-status th,.mb-status td{padding:.35em .45em}.mb-fill,.mb-wide{display:none!important}}
"""


class LastAudit(NamedTuple):
    """Last audit of a table: its end, and its result."""

    at: dt.datetime
    result: str


def status_table(
    rows: Sequence[ControlRow], audits: Mapping[TableName, LastAudit], now: dt.datetime, *, title: str
) -> str:
    """Return the table as a fragment of HTML, with its style.

    Args:
        rows: the rows of the control table.
        audits: the last audit of each table that has one.
        now: the current time.
        title: the name of the mirror, or '' to leave it out.
    """
    order = list(_WORDS)
    shown = sorted(rows, key=lambda row: (order.index(state_of(row)), row.name))
    most = max((row.rows for row in rows), default=0)
    body = "".join(_row(row, audits.get(row.name), most, now) for row in shown[:MOST_ROWS])
    more = f"<p class='mb-muted'>{len(shown) - MOST_ROWS} more tables are not shown.</p>" if shown[MOST_ROWS:] else ""
    head = (
        "<tr><th>table</th><th>state</th><th class='mb-number' title='rows read and changes applied'>rows</th>"
        "<th class='mb-number'>lag</th><th class='mb-wide'>position</th><th class='mb-wide'>last audit</th></tr>"
    )
    table = f"<div class='mb-scroll'><table><thead>{head}</thead><tbody>{body}</tbody></table></div>"
    empty = "<p>The mirror has no tables yet: its first micro-batch has not ended.</p>"
    return (
        f"<div class='mb-status'><style>{STYLE}</style>{_head(rows, now, title)}{table if rows else empty}{more}</div>"
    )


def shown_name(control: str) -> str:
    """Return the name of a control table as people write it: its folder, or its name without backquotes."""
    return (path_of(control) or control).replace("`", "")


def text(value: str, most: int = LONGEST_REASON) -> str:
    """Return text from a server as HTML, shortened, without characters that change other text."""
    plain = _DIRECTIONS.sub(lambda found: f"\\u{ord(found[0]):04x}", one_line(value))
    return html.escape(plain if len(plain) <= most else f"{plain[: most - 1]}…")


def seconds_text(value: float | None) -> str:
    """Return a duration in the unit that people would choose."""
    if value is None:
        return "–"  # noqa: RUF001  (a dash for a missing number)
    for least, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if value >= 2 * least:
            return f"{value / least:.0f} {unit}"
    return f"{value:.1f} s"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _head(rows: Sequence[ControlRow], now: dt.datetime, title: str) -> str:
    states = Counter(map(state_of, rows))
    words = [(state, word) for state, word in _WORDS.items() if states[state]]
    numbers = "".join(f"<span class='mb-state mb-{word}'>{states[state]:,} {word}</span>" for state, word in words)
    parts = "".join(
        f"<i class='mb-{word}' style='flex:{states[state]}' title='{states[state]} {word}'></i>"
        for state, word in words
    )
    written = max((row.updated_at for row in rows), default=None)
    lags = [row.lag for row in rows if row.lag is not None]
    age = "" if written is None else f"<span>last write {seconds_text((now - written).total_seconds())} ago</span>"
    lag = f"<span>lag {seconds_text(max(lags))} at the last write</span>" if lags else ""
    count = counted(len(rows), "table")
    bar = f"<div class='mb-bar'>{parts}</div>" if rows else ""
    name = f"<b>{text(title)}</b>" if title else ""
    return f"<div class='mb-head'>{name}<span>{count}</span>{numbers}{lag}{age}</div>{bar}"


def _row(row: ControlRow, audit: LastAudit | None, most: int, now: dt.datetime) -> str:
    word = _WORDS[state_of(row)]
    share = 100 * row.rows / most if most else 0
    fill = f"<span class='mb-fill'><i style='width:{share:.0f}%'></i></span>"
    name = text(table_text(row.name), LONGEST_NAME)
    cells = (
        f"<td class='mb-name' title='{text(row.target)}'>{name}</td>"
        f"<td><span class='mb-state'>{word}</span></td>"
        f"<td class='mb-number'>{row.rows:,}{fill}</td>"
        f"<td class='mb-number'>{seconds_text(row.lag)}</td>"
        f"<td class='mb-wide'>{text(row.position, LONGEST_NAME)}</td>"
        f"<td class='mb-wide'>{_audit(audit, now)}</td>"
    )
    if not row.error:
        return f"<tr class='mb-{word}'>{cells}</tr>"
    why = f"<tr class='mb-reason'><td class='mb-why' colspan='6'><div>{text(row.error)}</div></td></tr>"
    return f"<tr class='mb-{word}'>{cells}</tr>{why}"


def _audit(audit: LastAudit | None, now: dt.datetime) -> str:
    if audit is None:
        return "<span class='mb-muted'>never</span>"
    wrong = " class='mb-wrong'" if audit.result in (DIFFERENT, NOT_REPAIRED) else ""
    age = seconds_text(max(0.0, (now - audit.at).total_seconds()))
    return f"<span{wrong}>{text(audit.result)}</span> <span class='mb-muted'>{age} ago</span>"
