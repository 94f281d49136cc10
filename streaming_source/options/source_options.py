"""All options of `format("mariadb-binlog")` in one table, `OPTIONS`, and their parsers.

`file_options` parses Spark's mapping (lower-case keys, text values) for reads with a `path`, `SourceOptions.parse` for
all others. A `SourceOptions` needs no server if it names a daemon's relay log. A `ConfigError` names the option for
unknown names (with the nearest known one), values outside their type or range, options of a server together with a
path, and contradictory combinations. The options of the replica (connection, TLS, relay log) are those of
`replica.options.config`, under the same names in camelCase, and are checked there. A test compares docs/spark-
reference.md with this table.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from replica.errors import ConfigError
from replica.options.config import OPTIONS as REPLICA_HELP
from replica.options.config import ReplicaConfig
from replica.options.values import Endpoint, Position, ending_place, endpoint, one_of, seconds, size, switch
from streaming_source.options import row_options
from streaming_source.options.reading_options import MAX_ROWS, ReadingOptions
from streaming_source.options.row_options import Option, RowOptions, option, options_of, parsed

if TYPE_CHECKING:
    from collections.abc import Container, Mapping


# The options of `spark.read` over binlog files: which files, the keys of encrypted ones, names, and damage. No option
# holds a secret: keys are named by their files, which tasks open themselves.


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileOptions(RowOptions):
    """Parsed options of a batch read over files."""

    path: tuple[str, ...] = option(
        "path",
        row_options.paths,
        None,
        "Binlog files on disk, for spark.read: files, directories and globs, separated by commas",
    )
    key_file: str | None = option(
        "keyFile",
        row_options.file,
        None,
        "Keys of encrypted binlogs, in the format of file_key_management: one id;hexkey per line",
    )
    file_key: str | None = option(
        "fileKey",
        row_options.file,
        None,
        "File with the password of an encrypted keyFile (file_key_management_filekey)",
    )
    skip_damaged: bool = option(
        "skipDamaged", switch, "false", "Leave out damaged transactions, and log each, instead of stopping"
    )


# The options of a table in Spark's catalog: CREATE TABLE t USING `mariadb-binlog` OPTIONS (…). Spark passes each option
# of such a table twice, as NAME and as option.NAME, together with its provider, owner, location, comment and
# properties. `plain_options` returns only the options, as a reader without a catalog has them. When such a table is
# read, Spark (up to 4.3) passes only the options that the query itself names.

WITHOUT_OPTIONS: Final = (
    "When a table made by CREATE TABLE … USING is read, Spark (up to 4.3) passes none of its options. Name them in "
    "the query, SELECT … FROM t WITH (host='…', …) or spark.read.options(…).table('t'), or use CREATE TEMPORARY VIEW "
    "… USING instead."
)
_PREFIX: Final = "option."


def plain_options(given: Mapping[str, str], known: Container[str]) -> Mapping[str, str]:
    """Return the options among `given`.

    A plain NAME overrides its option.NAME, because a query over the table may have given another value.

    Args:
        given: names and values as Spark passes them.
        known: names of options in lower case.
    """
    prefixed = {key[len(_PREFIX) :]: value for key, value in given.items() if key.lower().startswith(_PREFIX)}
    if not prefixed:
        return given
    plain = {key: value for key, value in given.items() if key.lower() in known}
    named = {key.lower() for key in plain}
    return plain | {key: value for key, value in prefixed.items() if key.lower() not in named}


_log = logging.getLogger(__name__)

Transport = Literal["auto", "path", "inline"]
OnSchemaChange = Literal["ignore", "fail", "add"]

MAX_PARTITIONS = 10_000
"""Most partitions. Each costs Spark some 30 ms."""
SECRETS = frozenset({"password"})
# Two of the replica's options have another name and default here (startingPosition, includeSql). gtidStrictMode is an
# option of every read.
_HIDDEN = frozenset({"start", "annotate", "gtid_strict_mode"})
_SEVERAL = "paths"  # Spark's name for the argument of .load([...]): a JSON list
_WITHOUT_SERVER = "To read binlog files, set path; to read a daemon's relay log without a server, set relayDir alone."


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions(ReadingOptions):
    """Parsed options of a stream: of rows, of reading tables and of streams, and the replica's configuration.

    Attributes:
        replica: None if the options name only a daemon's relay log. Then no server is ever asked.
    """

    replica: ReplicaConfig | None
    relay_dir: Path | None = None
    ending_position: Position | None = option(  # noqa: RUF009
        "endingPosition",
        ending_place,
        None,
        "With spark.read: where to end: latest, at a GTID position, or before a time; with content=tables, the "
        "position of the rows, and earliest is before the first transaction of the binlog. Unset: latest",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        switch,
        "true",
        "If transactions after the position were removed: end with an error; false: continue at the oldest that is "
        "left",
    )
    max_bytes_per_trigger: int = option(
        "maxBytesPerTrigger", size, "64m", "Binlog bytes in one micro-batch; a larger transaction goes whole"
    )
    max_rows_per_trigger: int | None = option(
        "maxRowsPerTrigger",
        row_options.integer(1, MAX_ROWS),
        None,
        "Row changes of the selected tables in one micro-batch, in addition to the limit in bytes; a larger "
        "transaction goes whole",
    )
    max_transactions_per_trigger: int | None = option(
        "maxTransactionsPerTrigger",
        row_options.integer(1, MAX_ROWS),
        None,
        "Transactions with row changes of the selected tables in one micro-batch, in addition to the other limits",
    )
    min_rows_per_trigger: int | None = option(
        "minRowsPerTrigger",
        row_options.integer(1, MAX_ROWS),
        None,
        "A micro-batch waits for this many row changes of the selected tables, for maxTriggerDelay at most",
    )
    max_trigger_delay_s: float = option(
        "maxTriggerDelay", seconds, "15m", "With minRowsPerTrigger: the longest time between two micro-batches"
    )
    split_large_transactions: bool = option(
        "splitLargeTransactions",
        switch,
        "false",
        "Divide a transaction that alone exceeds maxBytesPerTrigger or maxRowsPerTrigger into micro-batches",
    )
    on_schema_change: OnSchemaChange = option(  # noqa: RUF009  (it makes a field)
        "onSchemaChange",
        one_of(OnSchemaChange),
        "ignore",
        "When columns of a table change: ignore (no new columns, NULL for dropped ones), fail (stop right before the "
        "change), or add (stop there, so that a restart has the new columns)",
    )
    schema_location: Path | None = option(  # noqa: RUF009
        "schemaLocation",
        row_options.folder,
        None,
        "Folder for the table definitions of each offset, if they are too large for the offset itself",
    )
    min_partitions: int | None = option(
        "minPartitions",
        row_options.integer(1, MAX_PARTITIONS),
        None,
        "Least number of tasks for a micro-batch; unset: one per core, of 4 to 32 MB each",
    )
    transport: Transport = option(  # noqa: RUF009  (it makes a field)
        "transport",
        one_of(Transport),
        "auto",
        "How tasks get their bytes: path (they open a file), inline (in the task), auto (path if the master is local)",
    )
    reader_name: str | None = option(
        "readerName",
        row_options.reader_name,
        None,
        "With a daemon's relayDir: name under which the daemon keeps files for this query, unique among its queries. "
        "Unset: made from the tables",
    )
    daemon_timeout_s: float = option(
        "daemonTimeout", seconds, "600s", "With a daemon's relayDir: how long a query waits for a daemon that is down"
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """Parse the options as Spark gives them (names in any case).

        Each call draws a new random server id unless one is set, because two queries must not share one.

        Raises:
            ConfigError: an unknown, missing or contradictory option, or a value that is not of its type.
        """
        if not given:
            raise ConfigError(
                "no option is given.",
                hint=f"Set at least table or tables, host and user. {WITHOUT_OPTIONS}",
            )
        own: dict[str, Any] = {}
        replica: dict[str, object] = {}
        for known, value in _known(_plain(given)):
            if known.replica:
                replica[known.field] = value
            elif known.scope == "files":
                raise ConfigError(
                    f"option {known.name} is for binlog files, and no path is given.",
                    hint="Set path and read with spark.read, or remove the option.",
                )
            else:
                own[known.field] = parsed(cls, known, value)
        directory = _relay_dir(replica)
        if replica.keys() == {"relay_dir"}:
            options = cls(replica=None, relay_dir=directory, **own)
        else:
            if not replica.keys() & {"user", "defaults_file"}:
                raise ConfigError("option user is missing.", hint=f"{REPLICA_HELP['user']}. {_WITHOUT_SERVER}")
            replica["annotate"] = own.get("include_sql", False)
            replica["gtid_strict_mode"] = own.get("gtid_strict_mode", True)
            config = _replica_config(replica)
            options = cls(replica=config, relay_dir=config.relay_dir, **own)
        options.check_rows()
        options.check_initial(has_server=options.replica is not None)
        if options.content == "tables":
            options = options.of_tables(own)
        if (options.min_rows_per_trigger or 0) > (options.max_rows_per_trigger or MAX_ROWS):
            raise ConfigError(
                "minRowsPerTrigger is larger than maxRowsPerTrigger: a batch would never be large enough.",
                hint="Raise maxRowsPerTrigger, or remove it.",
            )
        if options.on_schema_change == "add" and options.table is None:
            raise ConfigError(
                "onSchemaChange=add needs table: a VARIANT has new columns without a restart.",
                hint="Use ignore, or fail to stop at every change.",
            )
        return options

    def of_tables(self, given: Mapping[str, Any]) -> SourceOptions:
        """Return the options of a read of tables. Options about changes are refused with a ConfigError."""
        changes = [_BY_FIELD[field].name for field in given if field in _ABOUT_CHANGES]
        if changes:
            raise ConfigError(
                f"option {changes[0]} is about changes, and content=tables reads the tables themselves.",
                hint="Remove one of the two. The position of all rows is that of load(), or endingPosition.",
            )
        if self.replica is None:
            raise ConfigError(
                "content=tables reads the tables themselves, and no server is named: relayDir has their changes only.",
                hint="Set host and user.",
            )
        return self if self.table is None else dataclasses.replace(self, row_shape="flat")

    @property
    def snapshot_endpoint(self) -> Endpoint | None:
        """Server from which tables are read; None for the server of the changes."""
        return None if self.snapshot_host is None else endpoint(self.snapshot_host, self.connection.port)

    @property
    def connection(self) -> ReplicaConfig:
        """The replica's configuration, for code that needs a server.

        Raises:
            ConfigError: no server is named.
        """
        if self.replica is None:
            raise ConfigError("no server is named.", hint=f"Set host and user. {_WITHOUT_SERVER}")
        return self.replica

    @property
    def server(self) -> str:
        """Primary as the user named it, for rows and messages.

        The text is host:port, several with commas, or the socket. It is '' if no server is named.
        """
        return ",".join(map(str, self.replica.endpoints)) if self.replica else ""


def _relay_dir(replica: dict[str, object]) -> Path | None:
    """Return the option relayDir as a path, also from a URL file:///…, and put the path back into `replica`."""
    if "relay_dir" not in replica:
        return None
    try:
        replica["relay_dir"] = directory = Path(row_options.local_path(str(replica["relay_dir"]).strip()))
    except ValueError as error:
        raise ConfigError(
            f"option relayDir={replica['relay_dir']!r} {error}.", hint=f"{REPLICA_HELP['relay_dir']}."
        ) from None
    return directory


def names_files(given: Mapping[str, str]) -> bool:
    """Return True if these options name binlog files and not a server."""
    return any(key.lower() in ("path", _SEVERAL) for key in _plain(given))


def file_options(given: Mapping[str, str]) -> FileOptions:
    """Parse the options of a batch read over files as Spark gives them.

    Raises:
        ConfigError: as with `SourceOptions.parse`; or an option that needs a server.
    """
    given = _plain(given)
    several = [key for key in given if key.lower() == _SEVERAL]
    own: dict[str, Any] = {}
    for known, value in _known({key: value for key, value in given.items() if key not in several}):
        if known.scope in ("stream", "replica"):
            raise ConfigError(
                f"option {known.name} is for a server, and path reads files without one.",
                hint="Remove one of the two.",
            )
        own[known.field] = parsed(FileOptions, known, value)
    for key in several:
        own["path"] = tuple(map(str, json.loads(given[key])))
    if not own.get("path"):
        raise ConfigError("option path is missing.", hint=f"{_BY_LOWER_NAME['path'].help}.")
    if own.get("file_key") and not own.get("key_file"):
        raise ConfigError("option fileKey needs keyFile.", hint="Set keyFile to the encrypted key file.")
    options = FileOptions(**own)
    options.check_rows()
    return options


def _known(given: Mapping[str, str]) -> list[tuple[Option, str]]:
    """Return the options with their rows of the table."""
    found = []
    for key, value in given.items():
        known = _BY_LOWER_NAME.get(key.lower())
        if known is None:
            raise _unknown(key)
        found.append((known, value))
    return found


_FIELD = re.compile(r"(?<![\w/.-])[a-z]+(?:_[a-z]+)+(?![\w/-]|\.\w)")


def _replica_config(given: Mapping[str, object]) -> ReplicaConfig:
    try:
        return ReplicaConfig.parse(given)
    except ConfigError as error:
        raise ConfigError(_replica_help(error.message), hint=_replica_help(error.hint)) from None


def camel(field: str) -> str:
    head, *rest = field.removesuffix("_s").split("_")
    return head + "".join(word.capitalize() for word in rest)


def _replica_help(text: str) -> str:
    """Return a help text with the names of Spark options, such as relayDir for the replica's relay_dir.

    Parts of paths are not changed.
    """
    return _FIELD.sub(lambda name: camel(name[0]) if name[0] in REPLICA_HELP else name[0], text)


OPTIONS: tuple[Option, ...] = (
    *options_of(RowOptions, "rows"),
    *options_of(SourceOptions, "stream"),
    *options_of(FileOptions, "files"),
    *(
        Option(camel(f), f, ReplicaConfig.default_text(f), _replica_help(text), "replica")
        for f, text in REPLICA_HELP.items()
        if f not in _HIDDEN
    ),
)
_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}
FORMER_NAMES: Final = {"snapshotagain": "resnapshot", "snapshotrequests": "resnapshotRequests"}
"""Former names of options in lower case, and their names now."""
_BY_FIELD = {option.field: option for option in OPTIONS}
_ABOUT_CHANGES: Final = frozenset(
    {
        *("starting_position", "operations", "skip_unchanged", "include_ddl", "push_filters"),
        *("row_shape", "include_sql", "sequence_numbers", "on_schema_change", "schema_file", "on_statement_dml"),
    }
)


def _plain(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options under their present names."""
    plain = plain_options(given, {*_BY_LOWER_NAME, *FORMER_NAMES, _SEVERAL})
    present = {key: FORMER_NAMES.get(key.lower(), key) for key in plain}
    for key, name in present.items():
        if key != name:
            if any(other.lower() == name.lower() for other in plain):
                raise ConfigError(f"the options {key} and {name} are one.", hint=f"Remove {key}, the former name.")
            _warn_of_former_name(key, name)
    return {present[key]: value for key, value in plain.items()}


@functools.cache
def _warn_of_former_name(former: str, name: str) -> None:
    _log.warning("option %s is now called %s; the former name still works", former, name)


def _unknown(key: str) -> ConfigError:
    near = difflib.get_close_matches(key.lower(), _BY_LOWER_NAME, n=1, cutoff=0.5)
    names = ", ".join(option.name for option in OPTIONS)
    hint = f"Did you mean {_BY_LOWER_NAME[near[0]].name}?" if near else f"Known options: {names}."
    return ConfigError(f"unknown option {key!r} for mariadb-binlog.", hint=hint)
