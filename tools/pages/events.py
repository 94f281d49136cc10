"""Generator of docs/events.md from the table of event types: `python -m tools.pages.events > docs/events.md`.

A test compares the page with the output of this module, so that the page cannot become outdated.
"""

from __future__ import annotations

import sys

from replica.protocol.constants import OUTSIDE, EventType, Role

_MARIADB = "MariaDB 10.11.18, sql/log_event.cc, "
_MARIADB_TYPES = "MariaDB 10.11.18, sql/log_event.h, "
_MYSQL = "MySQL 8.4, libs/mysql/binlog/event/"
_INTRODUCTION = """\
# Events

This page lists the event types of the binlog that this program knows. It is made from the table that the decoders, the
grouping rule and the kernels read (`EventType` in `replica/protocol/constants.py`):
`python -m tools.pages.events > docs/events.md`.

* An event of an unknown type ends reading with `UnsupportedEventError`. With the IGNORABLE flag (0x80), it becomes an
  `UnknownEvent` and is counted instead.
* A REFUSED event ends reading, whatever its flags are.
* MYSQL_BEGIN and PAYLOAD are allowed in files. From a MariaDB primary they are refused.
* Outside of groups, only the roles with "yes" in [the table of roles](#roles) are allowed. An event of another role is
  refused there, because the start of its transaction is missing. Events with the IGNORABLE flag and the dummies of old
  servers are skipped.

A version means "since"; "read" means that the server reads the type, but does not write it. A source that is only a
name is in sql/log_event.cc of MariaDB 10.11.18, `Log_event_type` in its sql/log_event.h. The files of MySQL 8.4 are in
libs/mysql/binlog/event.

| type | number | role | read by | MariaDB | MySQL | source |
| --- | --- | --- | --- | --- | --- | --- |
"""

_ROLES = """
## Roles

| role | outside of groups | effect on groups |
| --- | --- | --- |
"""


def page() -> str:
    """Make the whole page."""
    rows = "".join(f"{_line(row)}\n" for row in EventType)
    roles = "".join(f"| {role.name} | {'yes' if role in OUTSIDE else 'no'} | {role.meaning} |\n" for role in Role)
    return _INTRODUCTION + rows + _ROLES + roles


def _line(row: EventType) -> str:
    decoder = f"`{row.decoder}`" if row.decoder else "" if row.role in (Role.STRANGER, Role.REFUSED) else "`events`"
    mariadb, mysql = (version.replace("all", "yes") for version in row.writers)
    source = row.source.removeprefix(_MARIADB).removeprefix(_MARIADB_TYPES)
    if source.startswith(_MYSQL):
        source = f"MySQL, {source.removeprefix(_MYSQL)}"
    return f"| {row.name} | {int(row)} | {row.role.name} | {decoder} | {mariadb} | {mysql} | {source} |"


if __name__ == "__main__":
    sys.stdout.write(page())
