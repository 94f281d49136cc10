"""DDL statements of the mirror's soak: the next statement for a table, which depends on the earlier ones.

In: a random source, and for `altered` the current columns. Out: SQL statements that the server accepts, by the name of
their kind. Every table keeps the columns `id`, `v` and `t`, so that writers need not know of the DDL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

FEW, MANY = 3, 8
"""Columns that are added to `altered`: below the first there is always one more, above the second one less."""
LADDERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "number": (("TINYINT", "SMALLINT", "INT", "BIGINT"), ("NULL", "7", "-100")),
    "text": (("VARCHAR(20)", "VARCHAR(60)", "TEXT"), ("NULL", "''", "'it''s ü'")),
    "amount": (("DECIMAL(8,2)", "DECIMAL(12,2)", "DECIMAL(18,2)"), ("NULL", "-0.05", "123456.78")),
    "time": (("DATETIME", "DATETIME(3)", "DATETIME(6)"), ("NULL", "'2026-02-03 04:05:06.123456'")),
    "label": (("ENUM('a','b')", "ENUM('a','b','c')"), ("NULL", "'a'", "'b'")),
}
"""The types of a family from narrow to wide, and values that the narrowest takes."""
DEFAULTS = {"number": "5", "text": "'none'", "amount": "0.50", "time": "'2020-02-29 01:02:03'", "label": "'b'"}


class Column(NamedTuple):
    """A column that was added: its name, family, how wide its type is by now, and whether it is NOT NULL."""

    name: str
    family: str
    width: int
    required: bool

    @property
    def type(self) -> str:
        return LADDERS[self.family][0][self.width]

    @property
    def widest(self) -> bool:
        return self.width == len(LADDERS[self.family][0]) - 1

    def values(self) -> Sequence[str]:
        return [value for value in LADDERS[self.family][1] if value != "NULL" or not self.required]


class Alterations:
    """The columns of `altered`, from one statement to the next."""

    def __init__(self, chance: random.Random) -> None:
        self.columns: list[Column] = []
        self._chance = chance
        self._number = 0
        self._indexed = False

    def next(self) -> tuple[str, str]:
        """Return the kind of the next ALTER and its text; the columns are those behind it."""
        kinds = ["ADD", "RENAME", "widen", "ADD and DROP", "another type", "index"]
        if len(self.columns) < FEW:
            kinds = ["ADD"]
        elif len(self.columns) >= MANY:
            kinds = ["DROP"]
        kind = self._chance.choice([*kinds, "DROP"] if len(self.columns) > FEW else kinds)
        if kind == "widen" and all(column.widest for column in self.columns):
            kind = "ADD"
        made = {
            "ADD": self._add,
            "DROP": self._drop,
            "RENAME": self._rename,
            "widen": self._widen,
            "ADD and DROP": lambda: f"{self._drop()}, {self._add()}",
            "another type": self._replace,
            "index": self._index,
        }[kind]()
        return f"ALTER: {kind}", f"ALTER TABLE altered {made}"

    def value(self) -> tuple[str, str] | None:
        """Return a column and a value for it; None where there is no column."""
        if not self.columns:
            return None
        column = self._chance.choice(self.columns)
        return column.name, self._chance.choice(column.values())

    def _name(self) -> str:
        self._number += 1
        return f"c{self._number}"

    def _add(self) -> str:
        family = self._chance.choice(sorted(LADDERS))
        required, default = self._chance.random() < 0.5, self._chance.random() < 0.5
        if required and family == "time":  # the server's own value would be a date that is none
            default = True
        self.columns.append(column := Column(self._name(), family, 0, required))
        words = [column.type, "NOT NULL" if required else "", f"DEFAULT {DEFAULTS[family]}" if default else ""]
        place = self._chance.choice(("", "FIRST", "AFTER v"))
        return " ".join(["ADD COLUMN", column.name, *filter(None, [*words, place])])

    def _drop(self) -> str:
        column = self.columns.pop(self._chance.randrange(len(self.columns)))
        return f"DROP COLUMN {column.name}"

    def _rename(self) -> str:
        place = self._chance.randrange(len(self.columns))
        old, name = self.columns[place], self._name()
        self.columns[place] = old._replace(name=name)
        return f"RENAME COLUMN {old.name} TO {name}"

    def _widen(self) -> str:
        place = self._chance.choice([n for n, column in enumerate(self.columns) if not column.widest])
        column = self.columns[place]
        self.columns[place] = wider = column._replace(width=column.width + 1, required=False)
        return f"MODIFY {wider.name} {wider.type}"

    def _replace(self) -> str:
        """Make text of a column: nothing follows that but reading the table again."""
        place = self._chance.randrange(len(self.columns))
        self.columns[place] = text = Column(self.columns[place].name, "text", 2, required=False)
        return f"MODIFY {text.name} {text.type}"

    def _index(self) -> str:
        self._indexed = not self._indexed
        return "ADD INDEX by_v (v)" if self._indexed else "DROP INDEX by_v"


GH_OST = (
    "CREATE TABLE _swapped_gho LIKE swapped",
    "INSERT INTO _swapped_gho SELECT * FROM swapped",
    "RENAME TABLE swapped TO _swapped_del, _swapped_gho TO swapped",
    "DROP TABLE _swapped_del",
)
OTHERS: dict[str, dict[str, tuple[str, ...]]] = {
    "emptied": {
        "TRUNCATE": ("TRUNCATE TABLE emptied",),
        "TRUNCATE, filled": (
            "TRUNCATE TABLE emptied",
            "INSERT INTO emptied SELECT seq, seq, 'filled' FROM seq_1_to_500",
        ),
    },
    "replaced": {
        "DROP, CREATE": (
            "DROP TABLE replaced",
            "CREATE TABLE replaced (id INT PRIMARY KEY, v INT NOT NULL, t VARCHAR(60))",
            "INSERT INTO replaced SELECT seq, 1, 'made again' FROM seq_1_to_300",
        ),
        "CREATE OR REPLACE": (
            "CREATE OR REPLACE TABLE replaced (id BIGINT PRIMARY KEY, t TEXT, v BIGINT, more INT DEFAULT 3)",
            "INSERT INTO replaced (id, v, t) SELECT seq, 2, 'replaced' FROM seq_1_to_300",
        ),
    },
    "swapped": {
        "as gh-ost does": GH_OST,
        "swap of two": ("RENAME TABLE swapped TO _aside, twin TO swapped, _aside TO twin",),
        "away and back": ("RENAME TABLE swapped TO _away", "RENAME TABLE _away TO swapped"),
    },
    "parts": {
        "TRUNCATE PARTITION": ("ALTER TABLE parts TRUNCATE PARTITION p1",),
        "EXCHANGE PARTITION": ("ALTER TABLE parts EXCHANGE PARTITION p0 WITH TABLE side",),
    },
}
"""What is done to the other tables, by its name."""


def next_statements(table: str, chance: random.Random, altered: Alterations) -> tuple[str, tuple[str, ...]]:
    """Return the kind of what is done to a table next, and its statements."""
    if table == "altered":
        kind, statement = altered.next()
        return kind, (statement,)
    return chance.choice(sorted(OTHERS[table].items()))
