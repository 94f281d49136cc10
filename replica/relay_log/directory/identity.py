"""Identity of a relay directory: the replica's server id, its owner, its open connections and its sources.

`relay.identity` is a small JSON file that is replaced as a whole. It contains:

* The server id. If none is configured, a random one is stored, so that a restarted replica has the same id.
* The connections. After a kill or a lost connection, they show which dump threads on a primary belong to this replica,
  so that it ends no other thread. Thread ids start again when a server restarts, so the server's start time is recorded
  too.
* The sources: the server from which each relay file was copied. Server ids in events may belong to several servers.
* Whether the primary stores table names in lower case. This decides how statements are read, and no event contains it.

A malformed file is an error and never a new identity, because two replicas with one id disconnect each other.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from replica.errors import RelayError
from replica.relay_log.directory.disk import disk_error, replace_file

if TYPE_CHECKING:
    from pathlib import Path

IDENTITY_NAME: Final = "relay.identity"
VERSION: Final = 1
MAX_BYTES: Final = 64 << 10
"""Maximum size of the file; a real one has some hundred bytes."""
MAX_CONNECTIONS: Final = 16
"""Maximum number of primaries to remember, more than any failover group has."""

MAX_SOURCES: Final = 64
"""Maximum number of server changes to remember; the source of older relay files is unknown."""

Owner = Literal["daemon", "embedded"]


@dataclass(frozen=True, slots=True)
class DumpThread:
    """Dump on a primary, with enough data to recognise exactly its thread."""

    endpoint: str
    server_id: int
    """Server id of the primary."""
    started: int
    """Start time of the server process by its own clock, in seconds since 1970; constant while the process runs."""
    thread_id: int
    client: str
    """Address and port of the replica, as the primary sees them."""


class CopiedFrom(NamedTuple):
    """Relay files from number `file` up to the next entry were copied from the server `uid`."""

    file: int
    uid: str


@dataclass(frozen=True, slots=True)
class Identity:
    server_id: int
    owner: Owner
    connections: tuple[DumpThread, ...] = ()
    """Dumps that the replica did not end itself, one per run of a primary, newest last."""
    sources: tuple[CopiedFrom, ...] = ()
    """Sources in the order of the files."""
    lower_case: bool = False
    """Whether the primary has lower_case_table_names, which is constant for the life of its data."""

    def with_connection(self, connection: DumpThread) -> Identity:
        others = [one for one in self.connections if not _same_place(one, connection)]
        return replace(self, connections=(*others, connection)[-MAX_CONNECTIONS:])

    def without_connection(self, ended: DumpThread) -> Identity:
        return replace(self, connections=tuple(one for one in self.connections if not _same_place(one, ended)))

    def with_source(self, source: CopiedFrom) -> Identity:
        """Return the identity with a new source from this file on.

        The source replaces the recorded sources of this and later files, which do not exist yet.
        """
        kept = [one for one in self.sources if one.file < source.file]
        if kept and kept[-1].uid == source.uid:
            return replace(self, sources=tuple(kept))
        return replace(self, sources=(*kept, source)[-MAX_SOURCES:])

    def source_of(self, file: int) -> str | None:
        """Return the server from which relay file `file` was copied; None if it was not recorded."""
        return next((one.uid for one in reversed(self.sources) if one.file <= file), None)


def source_of(directory: Path, file: int) -> str | None:
    """Return the server from which a relay file was copied; None also if the identity is missing or unreadable."""
    try:
        identity = read_identity(directory)
    except RelayError:
        return None  # the code that opens the log reports the error
    return None if identity is None else identity.source_of(file)


def stores_lower_case(directory: Path) -> bool:
    """Return True if the primary of a relay directory stores table names in lower case.

    Return False if the identity does not record the setting.
    """
    try:
        identity = read_identity(directory)
    except RelayError:
        return False  # the code that opens the log reports the error
    return identity is not None and identity.lower_case


def _same_place(one: DumpThread, other: DumpThread) -> bool:
    # The server id alone is not enough, because all nodes of a Galera cluster may share one. A server with two names
    # has two entries, and either of them finds the thread of the second.
    return (one.endpoint, one.server_id) == (other.endpoint, other.server_id)


def read_identity(directory: Path) -> Identity | None:
    """Read the identity; None if no replica has ever run here.

    Raises:
        RelayError: The file cannot be read, or is malformed.
    """
    path = directory / IDENTITY_NAME
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RelayError(f"{path} cannot be read: {error.strerror or error}.", hint="Check its permissions.") from None
    try:
        return _parsed(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise RelayError(
            f"{path} is not the identity of a replica, or was written by a newer version of this program.",
            hint="It holds the server id. Remove it so that a new id is generated, or set server_id.",
        ) from None


def take_identity(directory: Path, *, drawn: int, configured: bool, owner: Owner) -> Identity:
    """Return the identity to use from now on; the caller holds the directory's lock.

    Args:
        directory: Relay directory.
        drawn: Configured server id, or a random one for a directory without an identity.
        configured: Whether the server id is configured; it then replaces the stored one.
        owner: Who runs the replica.
    """
    stored = read_identity(directory)
    if stored is None:
        identity = Identity(drawn, owner)
    else:
        identity = replace(stored, owner=owner, server_id=drawn if configured else stored.server_id)
    if identity != stored:
        write_identity(directory, identity)
    return identity


def write_identity(directory: Path, identity: Identity) -> None:
    """Replace the file, without fsync: everything in it can be obtained again, and a random id is replaceable.

    Raises:
        DiskFullError: The disk has no room for some hundred bytes.
        RelayError: Any other error of the write.
    """
    try:
        replace_file(directory / IDENTITY_NAME, f"{json.dumps({'version': VERSION, **asdict(identity)})}\n".encode())
    except OSError as error:
        raise disk_error(directory, error) from error


def _parsed(found: dict[str, Any]) -> Identity:
    if found["version"] != VERSION or found["owner"] not in get_args(Owner):
        raise ValueError(found["version"])
    connections = tuple(DumpThread(**one) for one in found["connections"])
    for connection in connections:
        if [type(value) for value in astuple(connection)] != [str, int, int, int, str]:
            raise ValueError(connection)  # a thread id becomes part of an SQL statement
    sources = tuple(CopiedFrom(int(file), str(uid)) for file, uid in found.get("sources", ()))
    return Identity(
        int(found["server_id"]), found["owner"], connections, sources, found.get("lower_case", False) is True
    )
