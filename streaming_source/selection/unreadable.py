"""The selected tables that the account may not read: plain values, which tasks carry beside the selection.

`Unreadable.refusal` makes the error for rows of such a table that do not name their columns, with the GRANT that allows
reading it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from replica.errors import SchemaError
from replica.schema.patterns import matcher, table_pattern, table_text


@dataclass(frozen=True)
class Unreadable:
    """The patterns of which `account` may not read all tables. `grant`: the statement that helps, with PLACE for its
    object.
    """

    PLACE: ClassVar[str] = "{table}"

    account: str
    grant: str
    patterns: tuple[str, ...]

    def mended_by(self, pattern: str) -> str:
        """Return the GRANT for a table, or for all tables of a pattern."""
        asked = table_pattern(pattern)
        names = asked.name or (asked.one_database, None)
        return self.grant.replace(self.PLACE, ".".join(map(_quoted, names)), 1)

    def refusal(self, database: str, table: str) -> SchemaError | None:
        """Return the error for rows that do not name their columns, if the account may not read their table."""
        name = table_text((database, table))
        if not matcher(self.patterns).fits((database, table)):
            return None
        return SchemaError(
            f"the rows of {name} do not name their columns, and the account {self.account} has no SELECT on it, so "
            "the catalog could not name them either.",
            hint=f"{self.mended_by(name)} Or set binlog_row_metadata=FULL on the primary for later rows. Then start "
            "the query again: it continues at the same place.",
        )


def _quoted(name: str | None) -> str:
    return "*" if name is None else "`" + name.replace("`", "``") + "`"
