"""Arguments of `mirror()`: their kinds, choices, defaults and meanings, in one table.

The checks of `settings.py`, the TOML file of `__main__.py`, and the options in docs/mirror-reference.md come from
ARGUMENTS. A test compares this table with the signature of `mirror()`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

from replica.errors import ConfigError

OnTruncate = Literal["apply", "stop"]
OnDrop = Literal["keep", "drop"]
OnSwap = Literal["apply", "stop"]
OnAlter = Literal["evolve", "stop"]
OnCascade = Literal["apply", "ignore", "stop"]
OnTableError = Literal["suspend", "fail"]
Writer = Literal["spark", "native"]
Format = Literal["delta", "parquet", "iceberg"]
PARALLEL: Final = 4
"""Default number of tables whose MERGEs run at the same time. A small MERGE spends most of its time in the driver."""
MOST_PARALLEL: Final = 64


class ValueKind(NamedTuple):
    """Kind of an argument, in words, and its Python types."""

    words: str
    types: tuple[type, ...]


TEXT: Final = ValueKind("a string", (str,))
FILE: Final = ValueKind("a path", (str, os.PathLike))
TABLE: Final = ValueKind("a table of names and values", (Mapping,))
NAME_OR_TABLE: Final = ValueKind("a name, or a table of names and values", (str, Mapping))
NUMBER: Final = ValueKind("a whole number", (int,))
TIME: Final = ValueKind("a time such as 6h", (str, int, float))


class Argument(NamedTuple):
    """Argument of `mirror()`.

    Attributes:
        name: its name, as Spark spells options.
        meaning: its meaning in Markdown.
        kind: the kind of its values.
        default: its default; None if it has none.
        choices: the values that it accepts; empty if it accepts every value of its kind.
        unset: what an unset argument without a default stands for, in Markdown.
        needed: whether every mirror needs it.
        secret: whether its values are in no error text.
    """

    name: str
    meaning: str
    kind: ValueKind = TEXT
    default: str | int | None = None
    choices: tuple[str, ...] = ()
    unset: str = ""
    needed: bool = False
    secret: bool = False

    def check(self, value: object) -> None:
        """Refuse a value of another kind, and a value that is not among the choices.

        None means that the argument is not set.

        Raises:
            ConfigError: the value is invalid.
        """
        if value is None and not self.needed:
            return
        if not isinstance(value, self.kind.types) or isinstance(value, bool):
            shown = self.name if self.secret else f"{self.name}={value!r}"
            raise ConfigError(f"{shown} is not {self.kind.words}.", hint="Write numbers and switches without quotes.")
        if self.choices and value not in self.choices:
            raise ConfigError(
                f"{self.name}={value!r} is not one of {', '.join(self.choices)}.", hint="Choose one of them."
            )


ARGUMENTS: Final = (
    Argument(
        "tables",
        "tables, as in the source's option: `shop.*,crm.customer`. `excludeTables` leaves some out",
        needed=True,
    ),
    Argument(
        "into",
        "template of the targets' names, with `{table}` and optionally `{database}`. A missing namespace is created. A "
        "folder (`/lake/{database}/{table}`, `s3://…`) needs no catalog",
        needed=True,
    ),
    Argument("checkpointLocation", "a folder that belongs to this mirror alone", FILE, needed=True),
    Argument("control", "name or folder of the control table", unset="`mirror_control` beside the targets"),
    Argument(
        "format",
        "`delta`, [`iceberg`](#iceberg), or `parquet` for [folders in the mode append_log](#formats)",
        default="delta",
        choices=get_args(Format),
    ),
    Argument(
        "icebergCatalog",
        "name of a catalog in PyIceberg's configuration, or its properties: `type`, `uri`, `warehouse`, and optionally "
        "its `name`",
        NAME_OR_TABLE,
        unset='`default`, with `format="iceberg"`',
        secret=True,
    ),
    Argument(
        "writer",
        "[`native`](#two-writers): tasks write targets, and Spark writes what they cannot. `spark`: Spark alone",
        choices=get_args(Writer),
        unset="`native`",
    ),
    Argument(
        "onTruncate",
        "TRUNCATE: `apply` empties the target, `stop` suspends the table",
        default="apply",
        choices=get_args(OnTruncate),
    ),
    Argument(
        "onDrop",
        "DROP: `keep` leaves the target with its last rows, `drop` removes it",
        default="keep",
        choices=get_args(OnDrop),
    ),
    Argument(
        "onSwap",
        "another table in the table's place, and [changes without rows](mirror.md#changes-without-rows): `apply` "
        "re-snapshots, `stop` suspends",
        default="apply",
        choices=get_args(OnSwap),
    ),
    Argument(
        "onAlter",
        "ALTER: `evolve` changes the target, `stop` suspends",
        default="evolve",
        choices=get_args(OnAlter),
    ),
    Argument(
        "onCascade",
        "[cascades](mirror.md#foreign-keys-that-cascade): `apply` changes the rows, `stop` suspends, `ignore` leaves "
        "them",
        default="apply",
        choices=get_args(OnCascade),
    ),
    Argument(
        "onTableError",
        "a table that [cannot go on](#when-one-table-cannot-go-on): `suspend` it, or end the query (`fail`) before the "
        "control table records the batch",
        default="suspend",
        choices=get_args(OnTableError),
    ),
    Argument(
        "parallel",
        f"number of targets that are created and written at the same time, 1 to {MOST_PARALLEL}",
        NUMBER,
        default=PARALLEL,
    ),
    Argument("tableProperties", "properties of new targets; they override the mirror's own", TABLE),
    Argument(
        "rules", "[modes](mirror.md#modes) and [transforms](mirror.md#columns-and-rows-by-rule), by pattern", TABLE
    ),
    Argument("hashKeyFile", "file with the key of hashed columns", FILE),
    Argument(
        "storageOptions",
        "[options of delta-rs for S3](#object-storage); they override the session's settings",
        TABLE,
        secret=True,
    ),
    Argument("auditEvery", "interval of [audits](audit.md) of all tables: `1d`, `6h`", TIME),
    Argument(
        "trigger",
        'one of `{"processingTime": "5 seconds"}` and `{"availableNow": True}`. `{"once": True}` counts as '
        "`availableNow`",
        TABLE,
    ),
)
"""The arguments of `mirror()` besides the session and the options of the source, in the order of its signature."""

BY_NAME: Final = {one.name: one for one in ARGUMENTS}
BY_LOWER: Final = {name.lower(): name for name in BY_NAME}


def check_arguments(given: Mapping[str, object]) -> None:
    """Check arguments of `mirror()` one by one.

    Raises:
        ConfigError: a value is invalid.
    """
    for name, value in given.items():
        BY_NAME[name].check(value)
