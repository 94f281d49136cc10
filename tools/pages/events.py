"""Generator of docs/events.md from the table of event types: `python -m tools.pages.events > docs/events.md`.

A test compares the page with the output of this module, so that the page cannot become outdated.
"""

from __future__ import annotations

import sys

from replica.protocol.constants import OUTSIDE, EventType, Role

_INTRODUCTION = """\
# Events

Every event type of the binlog that this program knows: how it is read, what it does to event groups, who writes it, and
where that is written down. This page is made from the table that the decoders, the grouping rule and the kernels read
(`replica/protocol/constants.py`, `EventType`); make it again with
`python -m tools.pages.events > docs/events.md`.

An event of another type ends the reading with `UnsupportedEventError`, unless its IGNORABLE flag (0x80) is set: then it
comes out as `UnknownEvent` and is counted. REFUSED types end the reading whatever their flags say. A MariaDB primary
writes no groups of MySQL: over the network their beginnings and payloads are refused too; files may hold them.

An event that may not stand outside a group is refused there: it belongs to a transaction whose start was missed. Passed
over are those with the IGNORABLE flag, and the dummies that old servers send in place of other events.

| type | number | role | outside of groups | read by | MariaDB | MySQL | source |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

_ROLES = """
"read" says that the server reads the type and does not write it. Versions without a word are "since".

## Roles

| role | what the event does to groups |
| --- | --- |
"""


def page() -> str:
    """Make the whole page."""
    rows = "".join(f"{_line(row)}\n" for row in EventType)
    roles = "".join(f"| {role.name} | {role.meaning} |\n" for role in Role)
    return _INTRODUCTION + rows + _ROLES + roles


def _line(row: EventType) -> str:
    decoder = f"`{row.decoder}`" if row.decoder else "" if row.role in (Role.STRANGER, Role.REFUSED) else "`events`"
    outside = "yes" if row.role in OUTSIDE else "no"
    mariadb, mysql = (version.replace("all", "yes") for version in row.writers)
    return f"| {row.name} | {int(row)} | {row.role.name} | {outside} | {decoder} | {mariadb} | {mysql} | {row.source} |"


if __name__ == "__main__":
    sys.stdout.write(page())
