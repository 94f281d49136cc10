"""Session settings of a statement or a row change, and the SET statements for those that differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from replica.dump.event_words import quoted
from replica.protocol.constants import RowsFlag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.protocol.events.query import QueryEvent

ROWS_MODE: Final = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""The mode stores values unchanged, even zeros and dates that no calendar has.

It is not strict, because generated columns are recomputed.
"""
# Bits of the status variable flags2 (the server's OPTION_* flags).
_AUTO_IS_NULL: Final = 1 << 14
_NO_FOREIGN_KEY_CHECKS: Final = 1 << 26
_RELAXED_UNIQUE_CHECKS: Final = 1 << 27


@dataclass(slots=True)
class SessionSettings:
    """The current session settings."""

    _now: dict[str, str] = field(
        default_factory=lambda: {"time_zone": "'+00:00'", "sql_mode": f"'{ROWS_MODE}'", "foreign_key_checks": "1"}
    )
    _database: str = ""

    def change(self, wanted: Mapping[str, str]) -> str:
        """Return a SET statement for the settings that differ, '' if none does."""
        changed = {name: value for name, value in wanted.items() if self._now.get(name) != value}
        self._now.update(changed)
        if not changed:
            return ""
        return f"SET {', '.join(f'{name} = {value}' for name, value in changed.items())};\n"

    def use(self, database: str) -> str:
        if database == self._database:
            return ""
        self._database = database
        return f"USE {quoted(database)};\n"

    def leave(self) -> None:
        """Forget the database in use, because it may have been dropped."""
        self._database = ""


def settings_of_rows(flags: int, timestamp: int) -> dict[str, str]:
    """Return the settings that the `flags` of a rows event require."""
    return {
        "timestamp": str(timestamp),
        "time_zone": "'+00:00'",
        "sql_mode": f"'{ROWS_MODE}'",
        "foreign_key_checks": str(int(not flags & RowsFlag.NO_FOREIGN_KEY_CHECKS)),
        "unique_checks": str(int(not flags & RowsFlag.RELAXED_UNIQUE_CHECKS)),
        "check_constraint_checks": str(int(not flags & RowsFlag.NO_CHECK_CONSTRAINT_CHECKS)),
    }


def settings_of(event: QueryEvent) -> dict[str, str]:
    """Return the settings with which the statement ran. It does not depend on settings that were not logged."""
    status = event.status
    fraction = f".{status.microseconds:06}" if status.microseconds else ""
    found = {"timestamp": f"{event.header.timestamp}{fraction}"}
    if status.sql_mode is not None:
        found["sql_mode"] = str(status.sql_mode)
    if status.time_zone is not None:
        found["time_zone"] = "'" + status.time_zone.replace("'", "''") + "'"
    if status.flags2 is not None:
        found["foreign_key_checks"] = str(int(not status.flags2 & _NO_FOREIGN_KEY_CHECKS))
        found["unique_checks"] = str(int(not status.flags2 & _RELAXED_UNIQUE_CHECKS))
        found["sql_auto_is_null"] = str(int(bool(status.flags2 & _AUTO_IS_NULL)))
    if status.auto_increment is not None:
        found["auto_increment_increment"], found["auto_increment_offset"] = map(str, status.auto_increment)
    if status.charset is not None:
        _, found["collation_connection"], found["collation_server"] = map(str, status.charset)
    return found
