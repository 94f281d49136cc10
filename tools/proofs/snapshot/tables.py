"""Tables of the proof: one for each kind of key. Each row is a function of its number.

In: a server version and a number of rows. Out: DDL, the statement that fills a table on the server, the key of any row
number as SQL parameters, and the plain form of values for comparisons. The plain form is the same for values from
Spark's JSON, from the plain binlog decoder and from a SELECT. The first rows have even numbers, so that a row can be
inserted between any two of them.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import ipaddress
import json
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DATABASE = "snap"
VALUES = (("v", "BIGINT NOT NULL"), ("note", "VARCHAR(60) CHARACTER SET utf8mb4"), ("amount", "DECIMAL(12,2)"))
EPOCH = dt.datetime(2000, 1, 1)  # noqa: DTZ001  (DATETIME has no zone)
Key = tuple[Any, ...]
Canonical = str
SEPARATOR = "\x1f"


class State(NamedTuple):
    """A row in plain form: its key, and all of it."""

    key: Canonical
    row: Canonical


def _whole(value: Any) -> str:
    return str(int(value))


def _exact(value: Any) -> str:
    return format(Decimal(str(value)).normalize(), "f")


def _moment(value: Any) -> str:
    moment = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(value)
    return moment.isoformat(sep=" ", timespec="microseconds")


def _bytes(value: Any) -> str:
    return value if isinstance(value, str) else base64.b64encode(value).decode()


def _address(value: Any) -> str:
    return ipaddress.ip_address(value).compressed


def _uuid(value: Any) -> str:
    return str(uuid.UUID(value if isinstance(value, str) else value.decode()))


PLAIN: dict[str, Callable[[Any], str]] = {
    "whole": _whole,
    "exact": _exact,
    "moment": _moment,
    "bytes": _bytes,
    "address": _address,
    "uuid": _uuid,
    "text": str,
}
"""By form of a value: what it becomes."""
ORDER: dict[str, Callable[[str], Any]] = {
    "whole": int,
    "exact": Decimal,
    "moment": str,
    "bytes": base64.b64decode,
    "address": lambda text: ipaddress.ip_address(text).packed,
}
"""How the server sorts the values of a form, made of the plain text. The others are the server's secret."""
_VALUE_FORMS = {"v": "whole", "note": "text", "amount": "exact"}


@dataclass(frozen=True)
class Table:
    """`keys`: (column, declared type, form of its values); `number_sql`: the key of row number `n`, by column.

    `key_of` is the same in Python. `shift` is what moves every key of a range by less than a row's distance.
    """

    name: str
    keys: tuple[tuple[str, str, str], ...]
    number_sql: tuple[str, ...]
    key_of: Callable[[int], Key]
    domain: int
    shift: str = ""
    index: str = "PRIMARY KEY"
    weight: float = 1.0
    most: int = 1 << 62

    @property
    def columns(self) -> tuple[str, ...]:
        return (*(name for name, *_ in self.keys), *(name for name, _ in VALUES))

    @property
    def ordered(self) -> bool:
        return all(form in ORDER for *_, form in self.keys)

    def create(self) -> str:
        columns = [f"{name} {declared} NOT NULL" for name, declared, _ in self.keys]
        columns += [f"{name} {declared}" for name, declared in VALUES]
        key = ", ".join(name for name, *_ in self.keys)
        return f"CREATE TABLE {DATABASE}.{self.name} ({', '.join(columns)}, {self.index} ({key})) ENGINE=InnoDB"

    def fill(self, first: int, rows: int) -> str:
        """Insert the rows with these numbers, twice each."""
        numbers = f"(SELECT CAST(seq AS UNSIGNED) * 2 AS n FROM seq_{first}_to_{first + rows - 1}) AS numbers"
        values = "n, IF(n % 10 = 0, NULL, CONCAT('row ', n, ' ü')), IF(n % 7 = 0, NULL, n / 4)"
        return f"INSERT INTO {DATABASE}.{self.name} SELECT {', '.join(self.number_sql)}, {values} FROM {numbers}"

    def plain(self, image: Mapping[str, Any]) -> State:
        """A row by column names, each value with one of the forms."""
        key = SEPARATOR.join(PLAIN[form](image[name]) for name, _, form in self.keys)
        values = (
            "" if (value := image.get(name)) is None else "=" + PLAIN[form](value)
            for name, form in _VALUE_FORMS.items()
        )
        return State(key, SEPARATOR.join((key, *values)))

    def parsed(self, text: str | None) -> State | None:
        """The same of an image as JSON text; numbers stay exact."""
        if text is None:
            return None
        return self.plain(json.loads(text, parse_float=Decimal))

    def order(self, key: Canonical) -> Any:
        """What sorts as the server sorts these keys."""
        return tuple(ORDER[form](part) for part, (*_, form) in zip(key.split(SEPARATOR), self.keys, strict=True))


def _md5(n: int) -> bytes:
    return hashlib.md5(str(n).encode(), usedforsecurity=False).digest()


LETTERS = "aÄöZé"
WIDE = 1 << 20
"""More numbers than any table has rows; where keys are signed, half of them are negative."""

TABLES = (
    Table(
        "big",
        (("k", "BIGINT UNSIGNED", "whole"),),
        ("9223372036854775808 + n * 1000003",),
        lambda n: (9223372036854775808 + n * 1000003,),
        0,
        "k + 1",
    ),
    Table("neg", (("k", "INT", "whole"),), (f"CAST(n AS SIGNED) - {WIDE}",), lambda n: (n - WIDE,), 1, "k + 1"),
    Table(
        "price",
        (("k", "DECIMAL(30,5)", "exact"),),
        (f"(CAST(n AS SIGNED) - {WIDE}) * 12345.67891",),
        lambda n: ((n - WIDE) * Decimal("12345.67891"),),
        0,
        "k + 0.00001",
    ),
    Table(
        "moment",
        (("k", "DATETIME(6)", "moment"),),
        ("TIMESTAMPADD(MICROSECOND, n * 37000001, '2000-01-01 00:00:00')",),
        lambda n: (EPOCH + dt.timedelta(microseconds=n * 37000001),),
        1,
        "k + INTERVAL 1 MICROSECOND",
    ),
    Table(
        "bin",
        (("k", "BINARY(16)", "bytes"),),
        ("UNHEX(CONCAT(LEFT(MD5(n), 24), '00000000'))",),
        lambda n: (_md5(n)[:12] + bytes(4),),
        0,
    ),
    Table(
        "addr",
        (("k", "INET6", "address"),),
        ("CAST(CONCAT('2001:db8:0:', HEX(n DIV 65536), '::', HEX(n MOD 65536)) AS INET6)",),
        lambda n: (f"2001:db8:0:{n >> 16:x}::{n & 0xFFFF:x}",),
        1,
    ),
    Table(
        "ident",
        (("k", "UUID", "uuid"),),
        ("CONCAT(LEFT(MD5(n), 12), '4', SUBSTR(MD5(n), 14, 3), 'a', SUBSTR(MD5(n), 18))",),
        lambda n: (str(uuid.UUID(f"{(h := _md5(n).hex())[:12]}4{h[13:16]}a{h[17:]}")),),
        0,
    ),
    Table(
        "pair",
        (("k", "INT", "whole"), ("k2", "VARCHAR(20) CHARACTER SET utf8mb4", "text")),
        ("n DIV 1000", "CONCAT('n', LPAD(n MOD 1000, 3, '0'))"),
        lambda n: (n // 1000, f"n{n % 1000:03d}"),
        1,
        weight=0.5,
    ),
    Table(
        "twin",
        (("k", "SMALLINT", "whole"), ("k2", "VARBINARY(12)", "bytes")),
        ("5 - CAST(n MOD 3 AS SIGNED)", "UNHEX(LEFT(MD5(n), 2 * (4 + n MOD 9)))"),
        lambda n: (5 - n % 3, _md5(n)[: 4 + n % 9]),
        0,
        weight=0.05,
    ),
    Table(
        "word",
        (("k", "VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", "text"),),
        (f"CONCAT(SUBSTR('{LETTERS}', 1 + n MOD 5, 1), LOWER(HEX(n)))",),
        lambda n: (f"{LETTERS[n % 5]}{n:x}",),
        1,
        "IF(BINARY k = BINARY UPPER(k), LOWER(k), UPPER(k))",
        weight=0.5,
    ),
    Table(
        "uniq",
        (("k", "INT UNSIGNED", "whole"),),
        ("3000000000 + n",),
        lambda n: (3000000000 + n,),
        0,
        "k + 1",
        "UNIQUE KEY by_k",
    ),
    Table("lone", (("k", "INT", "whole"),), ("n",), lambda n: (n,), 1, "k + 1", most=1),
    Table("none", (("k", "INT", "whole"),), ("n",), lambda n: (n,), 0, "k + 1", most=0),
)


def tables(version: str) -> tuple[Table, ...]:
    """Those that a server version has the types for."""
    lacks_uuid = tuple(map(int, version.split("."))) < (10, 7)
    return tuple(table for table in TABLES if not (lacks_uuid and table.name == "ident"))


def rows_of(table: Table, rows: int, version: str) -> int:
    """How many of all the rows are this table's."""
    whole = sum(one.weight for one in tables(version))
    return min(table.most, max(1, int(rows * table.weight / whole)))
