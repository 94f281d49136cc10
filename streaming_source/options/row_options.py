"""An option as a row of a table, and the options that streams and files share: the tables, and the shape of rows.

`option` makes a dataclass field with the name that users write, a parser and a help text. `options_of` returns these
fields as `Option` rows, which the parsers (source_options.py), docs/spark-reference.md and error messages use.
`RowOptions` are the options that do not depend on where bytes come from. Errors: tables and table together, neither of
them, and rowShape=flat with many tables.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from replica.errors import ConfigError
from replica.options.values import one_of, switch
from replica.schema.patterns import matcher, table_pattern, table_patterns, table_text

if TYPE_CHECKING:
    from replica.rows.types.types import ValuePolicy
# Each parser takes the text of one option and returns its typed value. It raises ValueError with the end of a sentence,
# such as "is outside 1 to 9", and the caller (row_options.py) adds the option's name. Sizes, durations, switches,
# words, patterns and places have parsers in replica/options/values.py, which the command line shares.


_READER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # it becomes a file name
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # at least two letters, because C:/ is a path

Parser = Callable[[str], Any]


def integer(low: int, high: int) -> Parser:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ValueError("is not a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"is outside {low} to {high}")
        return number

    return parse


def reader_name(value: str) -> str:
    name = value.strip()
    if not _READER.fullmatch(name):
        raise ValueError("is not a name of up to 100 letters, digits, dots, hyphens and underscores")
    return name


def table(value: str) -> tuple[str, str]:
    name = table_pattern(value).name
    if name is None:
        raise ValueError("holds a pattern; table takes one table, tables takes patterns")
    return name


def columns(value: str) -> tuple[str, ...]:
    """Read names of columns. `*` matches any text."""
    names = tuple(name.strip().strip("`") for name in value.split(","))
    if not all(names):
        raise ValueError("names an empty column")
    return names


def names_of(known: tuple[str, ...]) -> Parser:
    """Make a parser for some of these words, separated by commas. It returns them in the order of `known`."""

    def parse(value: str) -> tuple[str, ...]:
        given = [name.strip().lower() for name in value.split(",")]
        for name in given:
            if name not in known:
                raise ValueError(f"holds {name!r}, which is not one of {', '.join(known)}")
        return tuple(name for name in known if name in given)

    return parse


def paths(value: str) -> tuple[str, ...]:
    """Read paths and globs of the local file system, separated by commas."""
    found = tuple(local_path(part.strip()) for part in value.split(","))
    if not all(found):
        raise ValueError("names an empty path")
    return found


def folder(value: str) -> Path:
    """Read the path of a folder, which need not exist."""
    return Path(file(value))


def file(value: str) -> str:
    path = local_path(value.strip().removeprefix("FILE:"))  # as file_key_management_filekey is written
    if not path:
        raise ValueError("names an empty path")
    return path


def local_path(text: str) -> str:
    """Read a local path, or that of a URL file:///var/log/bin.000001. Other schemes are errors."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        path = text
    elif scheme[1].lower() == "file":
        path = "/" + text[scheme.end() :].lstrip("/")
    else:
        raise ValueError(f"is on {scheme[1]}://, but only paths that the nodes can open themselves are read")
    if "\0" in path:
        raise ValueError("holds a zero byte")
    return path


RowShape = Literal["envelope", "flat"]
InvalidDates = Literal["null", "error", "text"]
InvalidText = Literal["replace", "error"]
Geometry = Literal["binary", "spark"]
SequenceNumbers = Literal["bigint", "decimal"]
OnStatementDml = Literal["fail", "warn", "ignore", "row"]
OPERATIONS = ("insert", "update", "delete", "ddl")
Scope = Literal["rows", "stream", "files", "replica"]
"""Reads to which an option applies: all reads, reads of a server, reads with `path`, or the replica's configuration of
a read of a server.
"""


class Option(NamedTuple):
    """One row of the table of options.

    Attributes:
        field: attribute of the options' class, or of its ReplicaConfig if `replica` is True.
    """

    name: str
    field: str
    default: str
    help: str
    scope: Scope

    @property
    def replica(self) -> bool:
        return self.scope == "replica"


def option(name: str, parse: Parser, default: str | None, text: str) -> Any:
    metadata = {"name": name, "parse": parse, "default": default or "", "help": text}
    return dataclasses.field(default=None if default is None else parse(default), metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Parsed options of rows, one field each."""

    table: tuple[str, str] | None = option(
        "table",
        table,
        None,
        "One table, database.table: its columns arrive typed. This or tables is required. Put a name with a dot in "
        "backquotes: `my.shop`.orders",
    )
    tables: tuple[str, ...] | None = option(
        "tables", table_patterns, None, "Many tables, shop.*,crm.customer: before and after arrive as VARIANT"
    )
    exclude_tables: tuple[str, ...] | None = option(
        "excludeTables", table_patterns, None, "Tables to leave out of those selected: shop.tmp_*,*.log"
    )
    include_shadow_tables: bool = option(
        "includeShadowTables",
        switch,
        "false",
        "Deliver rows of the copies that gh-ost and pt-online-schema-change make of a table (_t_gho, _t_new …) if a "
        "pattern selects them",
    )
    columns: tuple[str, ...] | None = option(
        "columns", columns, None, "Only these columns of the tables: id,name,price_*. In the table's own order"
    )
    operations: tuple[str, ...] | None = option(
        "operations",
        names_of(OPERATIONS),
        None,
        "Only changes of these kinds: insert, update, delete; ddl in the list counts as includeDdl=true",
    )
    skip_unchanged: bool = option(
        "skipUnchanged", switch, "false", "Leave out updates that change none of the selected columns"
    )
    include_ddl: bool = option(
        "includeDdl", switch, "false", "Deliver statements that define or empty the tables, as rows with op=ddl"
    )
    push_filters: bool = option(
        "pushFilters",
        switch,
        "false",
        "With spark.read: apply filter conditions before decoding. Each loaded DataFrame may then be used only once",
    )
    row_shape: RowShape = option(  # noqa: RUF009  (it makes a field)
        "rowShape", one_of(RowShape), "envelope", "envelope, or flat: the table's own columns (with table only)"
    )
    invalid_dates: InvalidDates = option(  # noqa: RUF009
        "invalidDates",
        one_of(InvalidDates),
        "null",
        "Zero and impossible dates: null, error, or text (DATE, DATETIME and TIMESTAMP columns become STRING)",
    )
    invalid_text: InvalidText = option(  # noqa: RUF009
        "invalidText",
        one_of(InvalidText),
        "replace",
        "Bytes that are not text in their column's character set: replace (each by U+FFFD) or error",
    )
    geometry: Geometry = option(  # noqa: RUF009
        "geometry",
        one_of(Geometry),
        "binary",
        "GEOMETRY columns: binary (SRID in 4 bytes, little endian, then WKB) or spark (Spark's GEOMETRY(ANY))",
    )
    sequence_numbers: SequenceNumbers = option(  # noqa: RUF009
        "sequenceNumbers",
        one_of(SequenceNumbers),
        "bigint",
        "Sequence numbers: bigint (one from 2^63 on is an error), or decimal (DECIMAL(20,0), all that GTIDs can have)",
    )
    include_sql: bool = option(
        "includeSql", switch, "false", "Fill source.sql with the statement, if the primary annotates rows"
    )
    schema_file: str | None = option(
        "schemaFile",
        file,
        None,
        "File with CREATE TABLE statements (mariadb-dump --no-data), for rows that do not name their columns. With "
        "files: the tables whose DDL is not in the files. With a stream: the tables as they were at its start",
    )
    skip_unprepared_xa: bool = option(
        "skipUnpreparedXa",
        switch,
        "false",
        "Leave out rows of XA transactions that were prepared before the read begins, and log each, instead of "
        "stopping",
    )
    gtid_strict_mode: bool = option(
        "gtidStrictMode",
        switch,
        "true",
        "Stop right before a transaction whose GTID is out of order; false: read each once, in the order of the binlog",
    )

    on_statement_dml: OnStatementDml = option(  # noqa: RUF009
        "onStatementDml",
        one_of(OnStatementDml),
        "fail",
        "If the primary logged a change of a selected table as a statement, without rows: fail (end right before it), "
        "warn (continue without its rows), ignore (the same without a warning), or row (warn, and deliver the "
        "statement as a row with op=ddl, which needs includeDdl)",
    )

    @property
    def patterns(self) -> tuple[str, ...]:
        """The selected tables as patterns database.table, also for a single table."""
        return (table_text(self.table),) if self.table else self.tables or ()

    @property
    def policy(self) -> ValuePolicy:
        """How values are converted that the types cannot hold."""
        from replica.rows.types.types import ValuePolicy  # imports pyarrow, which a parser of options does not need

        return ValuePolicy(self.invalid_dates, self.invalid_text, self.geometry)

    @property
    def row_operations(self) -> tuple[str, ...]:
        """The selected kinds of row changes."""
        return tuple(name for name in self.operations or OPERATIONS if name != "ddl")

    @property
    def wants_ddl(self) -> bool:
        return self.include_ddl or "ddl" in (self.operations or ())

    def check_rows(self) -> None:
        """Raise a ConfigError for contradictory options."""
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
        if self.row_shape == "flat" and self.wants_ddl:
            raise ConfigError(
                "rowShape=flat has no place for DDL: its columns are the table's.",
                hint="Use rowShape=envelope, or leave out includeDdl and ddl among the operations.",
            )
        if self.on_statement_dml == "row" and not self.wants_ddl:
            raise ConfigError(
                "onStatementDml=row delivers statements as rows of DDL, which are not enabled.",
                hint="Set includeDdl=true.",
            )
        left_out = matcher(self.exclude_tables or ())
        for pattern in self.patterns:
            if self.exclude_tables and left_out.covers(pattern):
                raise ConfigError(
                    f"excludeTables leaves out all of {pattern}, which is selected.",
                    hint="excludeTables wins over table and tables: remove the pattern from one of them.",
                )


def options_of(kind: type[RowOptions], scope: Scope) -> tuple[Option, ...]:
    """Return the options that `kind` adds to those of its base, in the order of its fields."""
    inherited = set() if kind is RowOptions else {field.name for field in dataclasses.fields(RowOptions)}
    return tuple(
        Option(f.metadata["name"], f.name, f.metadata["default"], f.metadata["help"], scope)
        for f in dataclasses.fields(kind)
        if f.metadata and f.name not in inherited
    )


def parsed(kind: type[RowOptions], option: Option, value: str) -> Any:
    """Read the text of one option as its typed value.

    Raises:
        ConfigError: the value is not of its type, or out of range.
    """
    (field,) = (f for f in dataclasses.fields(kind) if f.name == option.field)
    try:
        return field.metadata["parse"](value)
    except ValueError as error:
        raise ConfigError(f"option {option.name}={value!r} {error}.", hint=f"{option.help}.") from None
