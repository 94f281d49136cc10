"""Definitions of a query's tables at one position of the binlog: plain values, and their text in an offset.

`TableState` is the difference to the catalog with which the query was loaded. Rows that do not name their columns
(binlog_row_metadata=NO_LOG) have the columns of the state at their position, not those of the current catalog. So an
offset carries the state as text, and a restart continues with it, even if the server's catalog has changed since. A
catalog is read at some position, `as_of`. Until the stream reaches this position, later statements of the stream may
already be in the catalog. A text in another form is an error.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ConfigError, SchemaError
from replica.protocol.gtid import GtidPosition
from replica.schema.known_tables import tables_from_json, tables_to_json
from replica.schema.patterns import table_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from replica.protocol.gtid import Gtid
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema

MAX_STORED_BYTES: Final = 64 << 20
"""Most bytes of an inflated state: some 20 000 tables."""

Changes = tuple[tuple["TableName", "TableSchema | None"], ...]
"""Definitions that differ from the query's catalog; None for an unknown table."""


def with_changes(catalog: Mapping[TableName, TableSchema], changes: Changes | None) -> Mapping[TableName, TableSchema]:
    """Return the catalog with `changes` applied."""
    if not changes:
        return catalog
    changed = dict(catalog)
    for name, table in changes:
        if table is None:
            changed.pop(name, None)
        else:
            changed[name] = table
    return changed


@dataclass(frozen=True, slots=True)
class CatalogOrigin:
    """Origin of the catalog of a query.

    Attributes:
        position: the position at which all its tables are valid.
        described: whether the rows describe as much as the catalog, so that no state has to be kept. This needs
            binlog_row_metadata=FULL, and no type that rows cannot describe.
        databases: the default collation of each database.
        from_rows: the definition of the one table from its newest rows, if no server is asked. Each row is then decoded
            only by its own metadata.
    """

    position: GtidPosition
    described: bool
    databases: tuple[tuple[str, str], ...] = ()
    from_rows: TableSchema | None = None


@dataclass(frozen=True, slots=True)
class TableState:
    """State of the tables.

    Attributes:
        changes: the differences to the catalog of the query.
        databases: for each database, the collation or character set of new tables.
        as_of: the position of the catalog's other tables, until the stream reaches it.
        read_at: the same for tables in `changes` that were read from the server again.
    """

    changes: Mapping[TableName, TableSchema | None] = field(default_factory=dict)
    databases: Mapping[str, str] = field(default_factory=dict)
    as_of: GtidPosition = field(default_factory=GtidPosition)
    read_at: Mapping[TableName, GtidPosition] = field(default_factory=dict)

    def includes(self, name: TableName, gtid: Gtid) -> bool:
        """Return True if the definition of the table was read after this transaction, and so includes its outcome."""
        read = self.read_at.get(name) if name in self.changes else self.as_of
        last = None if read is None else read.get(gtid.domain_id)
        return last is not None and last.seq_no >= gtid.seq_no

    def only(self, wanted: Callable[[TableName], bool]) -> Changes:
        """Return the changes of selected tables, in the form of partitions."""
        return tuple((name, table) for name, table in sorted(self.changes.items()) if wanted(name))


def state_to_text(
    state: TableState, catalog: Mapping[TableName, TableSchema], kept: Callable[[TableName], bool]
) -> str:
    """Return the text of the kept tables at this state.

    The text has all kept tables, so it does not depend on the catalog of a later start.
    """
    tables = {name: table for name, table in with_changes(catalog, tuple(state.changes.items())).items() if kept(name)}
    value: dict[str, Any] = {"tables": tables_to_json(tables)}
    if state.databases:
        value["databases"] = dict(sorted(state.databases.items()))
    if state.as_of:
        value["as_of"] = str(state.as_of)
        exact = tables.keys() & (state.changes.keys() - state.read_at.keys())
        value["exact"] = [table_text(name) for name in sorted(exact)]
    read_at = {table_text(name): str(position) for name, position in sorted(state.read_at.items()) if name in tables}
    if read_at:
        value["read_at"] = read_at
    return base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)).decode("ascii")


def _by_text(stored: Mapping[TableName, TableSchema]) -> dict[str, TableName]:
    """Return the tables by their text. Older offsets have `database.table` also for names with a dot."""
    older: dict[str, list[TableName]] = {}
    for name in stored:
        older.setdefault(".".join(name), []).append(name)
    return {text: one[0] for text, one in older.items() if len(one) == 1} | {table_text(name): name for name in stored}


def state_from_text(text: str, catalog: Mapping[TableName, TableSchema]) -> TableState:
    """Return the state of a text as the difference to the current catalog.

    Raises:
        ConfigError: the text is damaged, or a newer version wrote it.
    """
    try:
        value = json.loads(zlib.decompressobj().decompress(base64.b64decode(text, validate=True), MAX_STORED_BYTES))
        stored = tables_from_json(value["tables"])
        names = _by_text(stored)
        read_at = {names[name]: GtidPosition.parse(position) for name, position in value.get("read_at", {}).items()}
        as_of = GtidPosition.parse(value["as_of"]) if "as_of" in value else GtidPosition()
        exact = {names[name] for name in value.get("exact", ())}
        databases = {str(name): str(collation) for name, collation in value.get("databases", {}).items()}
    except (zlib.error, binascii.Error, ValueError, KeyError, TypeError, AttributeError, SchemaError) as error:
        raise ConfigError(
            f"the tables stored with the checkpoint's offset are damaged ({type(error).__name__}: {error}).",
            hint="Restore the checkpoint folder, or start a new one with startingPosition.",
        ) from None
    changes: dict[TableName, TableSchema | None] = {
        name: table for name, table in stored.items() if catalog.get(name) != table or name in read_at or name in exact
    }
    if as_of:
        read_at = {**{name: as_of for name in changes if name not in exact}, **read_at}
    # If a table was created after the offset, the current catalog says nothing about earlier rows.
    changes.update((name, None) for name in catalog.keys() - stored.keys())
    return TableState(changes, databases, as_of, read_at)


# `SchemaStore.write` returns the value for the offset: the text itself, or the name of a file with the text. The name
# of a file is the digest of its content, and it is written atomically. So a torn or foreign file is noticed, and two
# queries may share a folder. Files that no offset needs any more are deleted, except for the newest, which an operator
# may need for resetting a checkpoint.
#
# Errors: a text that does not fit into an offset, without a folder; a file that is missing or changed.


MAX_INLINE: Final = 64 << 10
"""Most characters in an offset. Spark writes each offset to a file and shows it in each progress report."""
FILES_KEPT: Final = 32
"""Most unused files to keep. Each file is a change of a table, and an operator resets a checkpoint by some batches, not
by many changes.
"""

_FILE: Final = "file:"
_SUFFIX: Final = ".tables"


class SchemaStore:
    """Store of one query.

    Args:
        folder: the folder of the files. None: offsets carry the text.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._used: dict[str, None] = {}

    def write(self, text: str) -> str:
        """Store a text; return the value for the offset.

        Raises:
            ConfigError: the text is too long for an offset, or the folder cannot be written.
        """
        if self._folder is None:
            if len(text) > MAX_INLINE:
                raise ConfigError(
                    f"the definitions of the tables take {len(text) >> 10} KB, too much to keep in every offset.",
                    hint="Set schemaLocation to a folder that outlives this machine, select fewer tables, or set "
                    "binlog_row_metadata=FULL on the primary: then rows describe themselves.",
                )
            return text
        name = hashlib.sha256(text.encode("ascii")).hexdigest()
        path = self._folder / f"{name}{_SUFFIX}"
        if not path.exists():
            with _writing(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=name)
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(path)
        self._used[name] = None
        return _FILE + name

    def read(self, stored: str) -> str:
        """Return the text for the value of an offset.

        Raises:
            ConfigError: its file is missing or changed.
        """
        if not stored.startswith(_FILE):
            return stored
        name = stored.removeprefix(_FILE)
        if self._folder is None:
            raise ConfigError(
                "the checkpoint keeps the tables' columns in a folder, and schemaLocation is not set.",
                hint="Set schemaLocation as it was when the checkpoint was written.",
            )
        path = self._folder / f"{name}{_SUFFIX}"
        try:
            text = path.read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise _lost(path, str(error)) from None
        if hashlib.sha256(text.encode("ascii")).hexdigest() != name:
            raise _lost(path, "its content has changed")
        self._used[name] = None
        return text

    def release(self, stored: str | None) -> None:
        """Delete files that neither the offset with the value `stored` nor a later one needs."""
        if self._folder is None or stored is None:
            return
        needed = stored.removeprefix(_FILE)
        for name in list(self._used):
            if name == needed:
                break
            del self._used[name]
        with contextlib.suppress(OSError):  # another query may remove the same file
            files = sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
            for path in files[:-FILES_KEPT]:
                if path.name.removesuffix(_SUFFIX) not in self._used:
                    path.unlink()


def _lost(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"the table definitions of the checkpoint's offset cannot be read from {path}: {reason}.",
        hint="Restore the folder of schemaLocation, or start a new checkpoint with startingPosition and schemaFile.",
    )


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"schemaLocation {folder} cannot be written: {error.strerror}.",
            hint="Name a folder that the driver may write, also after it moves to another machine.",
        ) from None
