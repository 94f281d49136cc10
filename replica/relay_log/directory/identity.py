"""The identity of a relay directory: the replica's own server id, who runs it, its open connections, and its sources.

In and out: `relay.identity`, a small JSON file beside the relay log, replaced as a whole. A server id that was not
configured is drawn once and kept here, so that a replica that comes back is the same one to its primary. The
connections let a replica that was killed, or cut off, end its own dump threads on the primaries, and no stranger's:
thread ids begin again when a server restarts, so the server's start time belongs to the proof. The sources tell which
server each relay file was copied from, where the server id in its events may be that of several servers. Whether the
primary stores names of tables in small letters decides what the statements of the log mean, and no event says it.

A file that cannot be understood is an error, never a new identity: two replicas with one id throw each other out.
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
"""A real one has some hundred bytes; a larger file is not ours."""
MAX_CONNECTIONS: Final = 16
"""Primaries that are remembered; no one fails over between more."""

MAX_SOURCES: Final = 64
"""Changes of server that are remembered; older relay files are of a server no one can name."""

Owner = Literal["daemon", "embedded"]


@dataclass(frozen=True, slots=True)
class DumpThread:
    """One dump on a primary: enough to recognise its thread there and no other."""

    endpoint: str
    server_id: int
    """The primary's."""
    started: int
    """When that server process started, in seconds since 1970 by its own clock; never changes while it runs."""
    thread_id: int
    client: str
    """Our address and port, as the primary sees them."""


class CopiedFrom(NamedTuple):
    """Relay files from number `file` on, until the next one of these, were copied from the server `uid`."""

    file: int
    uid: str


@dataclass(frozen=True, slots=True)
class Identity:
    server_id: int
    owner: Owner
    connections: tuple[DumpThread, ...] = ()
    """The dumps not ended by our own goodbye, one a run of a primary, the last one last."""
    sources: tuple[CopiedFrom, ...] = ()
    """The sources in the order of the files."""
    lower_case: bool = False
    """Whether the primary has lower_case_table_names, which stays what it is for the life of its data."""

    def with_connection(self, connection: DumpThread) -> Identity:
        others = [one for one in self.connections if not _same_place(one, connection)]
        return replace(self, connections=(*others, connection)[-MAX_CONNECTIONS:])

    def without_connection(self, ended: DumpThread) -> Identity:
        return replace(self, connections=tuple(one for one in self.connections if not _same_place(one, ended)))

    def with_source(self, source: CopiedFrom) -> Identity:
        """Return the identity with a source from this file on; what was said of it and of later ones, which were never
        begun, is void.
        """
        kept = [one for one in self.sources if one.file < source.file]
        if kept and kept[-1].uid == source.uid:
            return replace(self, sources=tuple(kept))
        return replace(self, sources=(*kept, source)[-MAX_SOURCES:])

    def source_of(self, file: int) -> str | None:
        """Return the server that relay file `file` was copied from; None where it was not noted."""
        return next((one.uid for one in reversed(self.sources) if one.file <= file), None)


def source_of(directory: Path, file: int) -> str | None:
    """Return the same, read from a directory; None too where its identity was removed or cannot be read."""
    try:
        identity = read_identity(directory)
    except RelayError:
        return None  # the code that opens the log says so
    return None if identity is None else identity.source_of(file)


def stores_lower_case(directory: Path) -> bool:
    """Tell whether the primary of a relay directory stores names of tables in small letters; False where no replica
    noted it.
    """
    try:
        identity = read_identity(directory)
    except RelayError:
        return False  # the code that opens the log says so
    return identity is not None and identity.lower_case


def _same_place(one: DumpThread, other: DumpThread) -> bool:
    # Not by server id: all nodes of a Galera cluster may have one. A server that is reached by two names has two
    # entries, and the thread of the second is found by either.
    return (one.endpoint, one.server_id) == (other.endpoint, other.server_id)


def read_identity(directory: Path) -> Identity | None:
    """Read the identity; None where no replica has ever run.

    Raises:
        RelayError: the file cannot be read, or is not one of ours.
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
            f"{path} is not the identity of a replica, or of a newer version of this program.",
            hint="It holds the server id. Remove it to have a new one drawn, or set server_id.",
        ) from None


def take_identity(directory: Path, *, drawn: int, configured: bool, owner: Owner) -> Identity:
    """Decide who we are from now on; call this with the directory's lock held.

    Args:
        directory: the relay directory.
        drawn: the configured server id, or a random one for a directory that has none.
        configured: whether it was chosen: then it replaces the stored one.
        owner: who runs the replica.
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
    """Replace the file; without fsync, because all of it can be had again but a drawn id, which costs nothing.

    Raises:
        DiskFullError: no room for some hundred bytes.
        RelayError: it cannot be written otherwise.
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
            raise ValueError(connection)  # a thread id becomes part of a statement
    sources = tuple(CopiedFrom(int(file), str(uid)) for file, uid in found.get("sources", ()))
    return Identity(
        int(found["server_id"]), found["owner"], connections, sources, found.get("lower_case", False) is True
    )
