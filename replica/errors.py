"""Every error this project raises, and the exit code it ends a command with.

    ReplicaError
    ├── ConfigError 20                an option is unknown, missing or out of range: fix the call
    ├── PrerequisiteError 21          the server's settings or the account's grants do not allow replication
    ├── InstallationError 22          a package is missing, broken, or hidden by a file of the same name
    ├── ServerError 30                the server answered with an ERR packet (code, sqlstate, message)
    │   ├── AuthenticationError 31    wrong user or password, TLS required, missing privilege
    │   ├── PositionLostError 32      the position is diverged, or not in this server's binlog
    │   │   ├── PositionPurgedError   what follows it was purged: the only one that leaves something to go on from
    │   │   └── AmbiguousPositionError it names several places: sequence numbers went back
    │   └── DuplicateServerIdError 33 another replica took our server id (4052): never reconnect
    ├── OutOfOrderGtidError 34        a sequence number went back within its domain: stopped before that transaction
    ├── DisconnectedError 40          the connection ended; reconnecting may help (the only retryable one)
    ├── ProtocolError 50              the bytes are not what the protocol allows
    │   ├── TruncatedError            they end too early
    │   ├── ChecksumError             an event does not match its CRC32
    │   └── UnsupportedEventError     an event type we cannot read and must not skip
    ├── SchemaError 60                a table is unknown, or its columns do not match the row images
    │   ├── UnsupportedColumnError    a column type or character set we cannot decode
    │   ├── KeyChangedError           a table has another key than the one a part of its rows was delivered by
    │   └── ColumnsAddedError         a table has new columns, and the query was told to stop there: restart it
    ├── StatementDmlError 61          rows of the selected tables were changed by a statement that was logged as text
    ├── RelayError 70                 a relay file is torn, foreign, missing or locked
    │   └── DiskFullError             the disk or the quota is full: what is durable stays, room lets it go on
    └── DataLossError 80              what was asked for is no longer retained
        └── RelayFileRemovedError     a relay file is needed that was removed

Each says what happened, where (a file and offset, an option, a table), and in `hint` what to do about it.
"""

from __future__ import annotations

from typing import ClassVar, Final

__all__ = [
    "AmbiguousPositionError",
    "AuthenticationError",
    "ChecksumError",
    "ColumnsAddedError",
    "ConfigError",
    "DataLossError",
    "DisconnectedError",
    "DiskFullError",
    "DuplicateServerIdError",
    "InstallationError",
    "KeyChangedError",
    "OutOfOrderGtidError",
    "PositionLostError",
    "PositionPurgedError",
    "PrerequisiteError",
    "ProtocolError",
    "RelayError",
    "RelayFileRemovedError",
    "ReplicaError",
    "SchemaError",
    "ServerError",
    "StatementDmlError",
    "TruncatedError",
    "UnsupportedColumnError",
    "UnsupportedEventError",
]

MAY_READ: Final = "Check its name, and that this user may read it."
"""What to do about a file of the user's that cannot be read."""

_ENDS_OF_SENTENCES: Final = (".", ":", "!", "?", "…")


class ReplicaError(Exception):
    """Root of the tree. `hint` is one sentence of advice, shown after the message."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        # What a server or the system says may be a sentence already; the one that ends with it has its own full stop.
        if message.endswith("..") and not message.endswith("..."):
            message = message.removesuffix(".")
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message}{'' if self.message.endswith(_ENDS_OF_SENTENCES) else '.'} {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders in Spark: rebuild without calling a subclass's own __init__.
        return _rebuild, (type(self), self.message, self.__dict__)


def _rebuild(kind: type[ReplicaError], message: str, state: dict[str, object]) -> ReplicaError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class ConfigError(ReplicaError):
    """An option is unknown, missing, contradictory or out of range."""

    exit_code = 20


class PrerequisiteError(ReplicaError):
    """The server or the account is not set up for replication; the message lists every failed check."""

    exit_code = 21


class InstallationError(ReplicaError):
    """A package that is needed is missing or broken, or a file of the same name is found before it."""

    exit_code = 22


class ServerError(ReplicaError):
    """The server answered with an ERR packet."""

    exit_code = 30

    def __init__(self, message: str, *, code: int = 0, sqlstate: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.sqlstate = sqlstate


class AuthenticationError(ServerError):
    """Wrong user or password, TLS required, or a privilege is missing."""

    exit_code = 31


class PositionLostError(ServerError):
    """The server does not have the position: purged, diverged, reset, or another server's."""

    exit_code = 32


class PositionPurgedError(PositionLostError):
    """The server knows the position, but the binlogs with what follows it were removed."""


class AmbiguousPositionError(PositionLostError):
    """The position names more than one place, because sequence numbers went back."""


class DuplicateServerIdError(ServerError):
    """Another replica registered with our server id and the server dropped us (error 4052)."""

    exit_code = 33


class OutOfOrderGtidError(ReplicaError):
    """A transaction's sequence number is not above the last one of its domain, and gtid_strict_mode is on."""

    exit_code = 34


class DisconnectedError(ReplicaError):
    """The connection ended or went silent; the only error that a reconnect may fix."""

    exit_code = 40


class ProtocolError(ReplicaError):
    """The bytes are not what the protocol allows; `offset` is where, counted from the start of what was read."""

    exit_code = 50

    def __init__(self, message: str, *, offset: int | None = None, hint: str = "") -> None:
        super().__init__(message if offset is None else f"{message} (at offset {offset})", hint=hint)
        self.offset = offset

    @property
    def placeless(self) -> str:
        """The message without its offset, for a caller who knows a better one."""
        return self.message.removesuffix(f" (at offset {self.offset})")


class TruncatedError(ProtocolError):
    """The bytes end before the structure does."""


class ChecksumError(ProtocolError):
    """Damaged bytes: an event does not match its CRC32, or a frame of a compressed connection cannot be inflated."""


class UnsupportedEventError(ProtocolError):
    """An event type that cannot be read and must not be skipped (no IGNORABLE flag)."""


class SchemaError(ReplicaError):
    """A table is unknown, or its columns do not match what the row images hold."""

    exit_code = 60


class UnsupportedColumnError(SchemaError):
    """A column type or character set that cannot be decoded exactly."""


class KeyChangedError(SchemaError):
    """A table has another key than the one by which a part of its rows was delivered."""


class ColumnsAddedError(SchemaError):
    """A table has new columns, and the query was told to stop there: a restart goes on right behind, with them."""


class StatementDmlError(ReplicaError):
    """Rows were changed by a statement that the binlog holds as text: they are in no row event, and no one has them."""

    exit_code = 61


class RelayError(ReplicaError):
    """A relay file is torn, foreign, missing, or locked by another process."""

    exit_code = 70


class DiskFullError(RelayError):
    """A disk or quota is full, of a relay log or a mirror. Nothing committed is lost; with room, it goes on."""


class DataLossError(ReplicaError):
    """The data that was asked for is no longer retained anywhere we can reach."""

    exit_code = 80


class RelayFileRemovedError(DataLossError):
    """A relay file is needed that was removed; the primary may still have what it held."""


def describe(error: ReplicaError) -> dict[str, object]:
    """Describe an error as key-value pairs for a structured log or a JSON answer."""
    return {"error": type(error).__name__, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
