"""Every option of `format("mariadb-binlog")` in one table, and the parser that refuses what is not in it.

In: the mapping Spark hands over (keys lower-cased, all values text). Out: a frozen `SourceOptions`. Refused, with a
`ConfigError` that names the option: unknown names (with the nearest known one), values outside their type or range,
and combinations that contradict each other. The options of the replica (connection, TLS, relay log) are those of
`replica.config`, under the same names in camelCase, checked there. docs/spark.md is checked against this table.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from replica.config import OPTIONS as REPLICA_HELP
from replica.config import ReplicaConfig
from replica.errors import ConfigError
from streaming_source import option_values as values

if TYPE_CHECKING:
    from collections.abc import Mapping

RowShape = Literal["envelope", "flat"]
Transport = Literal["auto", "path", "inline"]
InvalidDates = Literal["null", "error", "text"]

MAX_ROWS = 2**63 - 1
SECRETS = frozenset({"password"})
# Two of the replica's options have another name and default here: startingPosition and includeSql.
_HIDDEN = frozenset({"start", "annotate"})


class Option(NamedTuple):
    """One row of the table. `field` names an attribute of SourceOptions, or with `replica` of its ReplicaConfig."""

    name: str
    field: str
    default: str
    help: str
    replica: bool = False


def option(name: str, parse: values.Parser, default: str | None, text: str) -> Any:
    metadata = {"name": name, "parse": parse, "default": default or "", "help": text}
    return dataclasses.field(default=None if default is None else parse(default), metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The parsed options: the source's own, one field each, and the replica's configuration."""

    replica: ReplicaConfig
    table: tuple[str, str] | None = option(
        "table", values.table, None, "One table, database.table: its columns arrive typed. This or tables is required"
    )
    tables: tuple[str, ...] | None = option(
        "tables", values.tables, None, "Many tables, shop.*,crm.customer: before and after arrive as VARIANT"
    )
    row_shape: RowShape = option(  # noqa: RUF009  (it makes a field)
        "rowShape", values.choice(RowShape), "envelope", "envelope, or flat: the table's own columns (with table only)"
    )
    starting_position: str = option(
        "startingPosition",
        values.position,
        "latest",
        "Where a query without a checkpoint starts: latest, earliest, or a GTID position (start after it)",
    )
    max_bytes_per_trigger: int = option(
        "maxBytesPerTrigger", values.size, "64m", "Binlog bytes in one micro-batch; a larger transaction goes whole"
    )
    max_rows_per_trigger: int | None = option(
        "maxRowsPerTrigger",
        values.integer(1, MAX_ROWS),
        None,
        "Row changes of the selected tables in one micro-batch, beside the bytes; a larger transaction goes whole",
    )
    transport: Transport = option(  # noqa: RUF009
        "transport",
        values.choice(Transport),
        "auto",
        "How tasks get their bytes: path (they open a file), inline (in the task), auto (path if the master is local)",
    )
    invalid_dates: InvalidDates = option(  # noqa: RUF009
        "invalidDates",
        values.choice(InvalidDates),
        "null",
        "Zero and impossible dates: null, error, or text (DATE, DATETIME and TIMESTAMP columns become STRING)",
    )
    include_sql: bool = option(
        "includeSql", values.boolean, "false", "Fill source.sql with the statement, where the primary annotates rows"
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """The options as Spark gives them (names in any case) -> typed, checked options.

        Each call draws a new random server id unless one is set: two queries must not share one.

        Raises:
            ConfigError: an unknown, missing or contradictory option, or a value that is not of its type.

        """
        own: dict[str, Any] = {}
        replica: dict[str, object] = {}
        for key, value in given.items():
            option = _BY_LOWER_NAME.get(key.lower())
            if option is None:
                raise _unknown(key)
            if option.replica:
                replica[option.field] = value
                continue
            try:
                own[option.field] = _PARSERS[option.field](value)
            except ValueError as error:
                raise ConfigError(f"option {option.name}={value!r} {error}.", hint=f"{option.help}.") from None
        if "user" not in replica:
            raise ConfigError("option user is missing.", hint=f"{REPLICA_HELP['user']}.")
        replica["annotate"] = own.get("include_sql", False)
        options = cls(replica=ReplicaConfig.parse(replica), **own)
        options._check()
        return options

    def _check(self) -> None:
        if self.table and self.tables:
            raise ConfigError("options table and tables exclude each other.", hint="Remove one of them.")
        if not self.table and not self.tables:
            raise ConfigError(
                "no table is selected.",
                hint="Set table=database.table for typed columns, or tables=shop.*,crm.customer for VARIANT.",
            )
        if self.row_shape == "flat" and not self.table:
            raise ConfigError(
                "rowShape=flat needs table=database.table: rows of many tables have no columns in common.",
                hint="Use rowShape=envelope with tables.",
            )

    @property
    def patterns(self) -> tuple[str, ...]:
        """The selected tables as patterns database.table, also for a single table."""
        return (".".join(self.table),) if self.table else self.tables or ()

    @property
    def server(self) -> str:
        """The primary as the user named it, for rows and messages: host:port, several with commas, or the socket."""
        return ",".join(map(str, self.replica.endpoints))


def _camel(field: str) -> str:
    head, *rest = field.removesuffix("_s").split("_")
    return head + "".join(word.capitalize() for word in rest)


def _replica_default(field: str) -> str:
    """The default as a user would write it; '' for none, and for what is drawn anew each time."""
    info = ReplicaConfig.model_fields[field]
    if info.is_required() or info.default_factory is not None or info.default is None:
        return ""
    default = info.default
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, bool):
        return str(default).lower()
    if field.endswith("_bytes"):
        return f"{default >> 20}m"
    return f"{default:g}s" if field.endswith("_s") else str(default)


def _replica_help(text: str) -> str:
    """The replica's help speaks of relay_dir; users of Spark write relayDir."""
    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda name: _camel(name[0]) if name[0] in REPLICA_HELP else name[0], text)


_FIELDS = [f for f in dataclasses.fields(SourceOptions) if f.metadata]
_PARSERS: dict[str, values.Parser] = {f.name: f.metadata["parse"] for f in _FIELDS}

OPTIONS: tuple[Option, ...] = (
    *(Option(f.metadata["name"], f.name, f.metadata["default"], f.metadata["help"]) for f in _FIELDS),
    *(
        Option(_camel(f), f, _replica_default(f), _replica_help(text), True)
        for f, text in REPLICA_HELP.items()
        if f not in _HIDDEN
    ),
)
_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}


def _unknown(key: str) -> ConfigError:
    near = difflib.get_close_matches(key.lower(), _BY_LOWER_NAME, n=1, cutoff=0.5)
    names = ", ".join(option.name for option in OPTIONS)
    hint = f"Did you mean {_BY_LOWER_NAME[near[0]].name}?" if near else f"Known options: {names}."
    return ConfigError(f"unknown option {key!r} for mariadb-binlog.", hint=hint)
