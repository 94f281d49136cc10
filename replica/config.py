"""Every option of the replica in one typed table: the command line, the environment and the documentation read it here.

In: values of Python's own types, or text as a shell or a file gives it. Out: a frozen `ReplicaConfig`. Refused with a
`ConfigError` that names the option: unknown names (with the nearest known one), values outside their type or range, and
combinations that contradict each other. The password never stands in a message, a repr or a log: it is a SecretStr.
"""

from __future__ import annotations

import difflib
import random
import re
import tomllib
from pathlib import Path  # noqa: TC003  (pydantic reads the annotations when the class is made)
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator

from replica.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TlsMode = Literal["disabled", "required", "verify-ca", "verify-identity"]
AckPolicy = Literal["fsync", "receive"]

FIRST_RANDOM_SERVER_ID = 1 << 31
"""People number their servers from 1: random ids come from the upper half of the 32 bits."""
MAX_SERVER_ID = (1 << 32) - 1
MAX_SECONDS = 365 * 86_400.0
ENVIRONMENT_PREFIX = "MARIADB_REPLICA_"

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_SIZE_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?", re.IGNORECASE)
_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _size(value: object) -> object:
    """'64m' -> 67108864; k, m, g and t are powers of 1024."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("is not a size such as 500k, 64m or 2g")
    return int(match[1]) << _SIZE_SHIFT[match[2].lower()]


def _seconds(value: object) -> object:
    """'500ms' -> 0.5; a bare number is seconds."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError("is not a time such as 500ms, 10s or 5m")
    return float(match[1]) * _DURATION_S[(match[2] or "s").lower()]


def _hosts(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(name.strip() for name in value.split(","))


Bytes = Annotated[int, BeforeValidator(_size), Field(gt=0)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, le=MAX_SECONDS)]
Hosts = Annotated[tuple[str, ...], BeforeValidator(_hosts), Field(min_length=1)]


class Endpoint(NamedTuple):
    """Where to connect: a host and port, or a Unix socket (then host is empty and port 0)."""

    host: str
    port: int
    unix_socket: str = ""

    def __str__(self) -> str:
        if self.unix_socket:
            return self.unix_socket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ReplicaConfig(BaseModel):
    """The options, one field each; the field's description is its help text everywhere."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    host: Hosts = Field(("127.0.0.1",), description="The primary, or several servers tried in turn: db1,db2:3307")
    port: int = Field(3306, ge=1, le=65_535, description="TCP port of the hosts that name none")
    unix_socket: str | None = Field(None, description="Unix socket of a primary on this machine, instead of host")
    user: str = Field(min_length=1, description="Account with REPLICATION SLAVE, and SELECT on the tables")
    password: SecretStr | None = Field(None, description="Its password; a file or the environment is safer")
    password_file: Path | None = Field(None, description="File whose first line is the password")
    tls: TlsMode | None = Field(
        None,
        description="disabled, required, verify-ca or verify-identity; never falls back to plain text. "
        "Unset: verify-identity with a tls_ca, else disabled",
    )
    tls_ca: Path | None = Field(None, description="Certificate authorities to trust (PEM)")
    tls_cert: Path | None = Field(None, description="Client certificate (PEM)")
    tls_key: Path | None = Field(None, description="Key of the client certificate (PEM)")
    compress: bool = Field(False, description="Compress the connection (zlib): for a slow or paid network")
    server_id: int = Field(
        default_factory=lambda: random.SystemRandom().randint(FIRST_RANDOM_SERVER_ID, MAX_SERVER_ID),
        ge=1,
        le=MAX_SERVER_ID,
        description="Replica id, unique among all replicas of the primary; a random high one if unset",
    )
    report_host: str = Field("", max_length=60, description="Name shown by SHOW REPLICA HOSTS on the primary")
    start: str = Field(
        "latest", description="Where an empty relay log starts: latest, earliest, or a GTID position (start after it)"
    )
    connect_timeout_s: Seconds = Field(10.0, description="Longest wait for one connection and login")
    heartbeat_s: Seconds = Field(10.0, le=4_294_967.0, description="How often an idle primary says it is alive")
    net_write_timeout_s: int = Field(
        3600, ge=1, le=31_536_000, description="How long the primary waits for us to take bytes before it hangs up"
    )
    gtid_strict_mode: bool = Field(True, description="Refuse to start inside a hole of the primary's binlog")
    gtid_ignore_duplicates: bool = Field(
        False, description="Accept a primary that is still behind our position, and wait for it"
    )
    annotate: bool = Field(False, description="Ask for the SQL text of row changes (ANNOTATE_ROWS events)")
    semi_sync: bool = Field(False, description="Acknowledge semi-synchronously, after the relay log is on disk")
    ack_policy: AckPolicy = Field("fsync", description="With semi_sync, when to acknowledge: fsync or receive")
    relay_dir: Path | None = Field(None, description="Folder of the relay log")
    relay_max_file_bytes: Bytes = Field(128 << 20, description="A relay file is closed at the next group end past this")
    relay_max_file_age_s: Seconds = Field(
        3600.0, description="A relay file is closed at a group end once it is this old, so that it can be removed"
    )
    min_free_bytes: Bytes = Field(
        256 << 20, description="Receiving pauses while the relay log's disk has less than this free"
    )
    relay_max_bytes: Bytes = Field(4 << 30, description="Receiving pauses while the relay log holds this much")
    backoff_initial_s: Seconds = Field(0.2, description="Longest wait before the first reconnect; doubles from there")
    backoff_max_s: Seconds = Field(30.0, description="Longest wait between two reconnects")
    connect_retry_s: Seconds = Field(30.0, description="How long the first connection is tried before giving up")
    reconnect_retry_s: Seconds = Field(600.0, description="How long a lost connection is tried before giving up")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = self.model_fields_set
        for one, other in (("host", "unix_socket"), ("port", "unix_socket"), ("password", "password_file")):
            if {one, other} <= given and getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"{one} and {other} exclude each other: remove one of them")
        for needing, needed in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
            if getattr(self, needing) and not getattr(self, needed):
                raise ValueError(f"{needing} needs {needed}")
        if self.tls == "disabled" and (self.tls_ca or self.tls_cert):
            raise ValueError("tls=disabled contradicts tls_ca and tls_cert: remove either")
        if self.tls == "required" and self.tls_ca:
            raise ValueError("tls=required checks no certificate, so tls_ca would do nothing: use tls=verify-identity")
        self.endpoints  # noqa: B018  (raises for a malformed host)
        return self

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The servers to try, in order."""
        if self.unix_socket:
            return (Endpoint("", 0, self.unix_socket),)
        return tuple(_endpoint(text, self.port) for text in self.host)

    @property
    def tls_mode(self) -> TlsMode:
        """What `tls` means: a certificate authority is given in order to verify with it."""
        if self.tls is not None:
            return self.tls
        if self.tls_ca:
            return "verify-identity"
        return "required" if self.tls_cert else "disabled"

    def read_password(self) -> str:
        """The password, read from its file each time so that a rotated one is picked up at the next reconnect.

        Raises:
            ConfigError: the file cannot be read.

        """
        if self.password_file is None:
            return self.password.get_secret_value() if self.password else ""
        try:
            text = self.password_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"password_file {self.password_file} cannot be read: {error}.",
                hint="Its first line must be the password, in UTF-8.",
            ) from None
        return text.split("\n", 1)[0].rstrip("\r")

    @classmethod
    def help(cls) -> dict[str, str]:
        """Option name -> help text; what the command line and the documentation are made of."""
        return {name: field.description or "" for name, field in cls.model_fields.items()}

    @classmethod
    def spellings(cls) -> dict[str, str]:
        """Every spelling of an option, without hyphens, underscores and capitals -> its name."""
        return {_fold(alias): name for name in cls.model_fields for alias in _aliases(name)}

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Self:
        """Options by name, in any of the spellings relay_dir, relay-dir, relayDir -> a checked configuration.

        Raises:
            ConfigError: an unknown, missing or contradictory option, or a value that is not of its type.

        """
        known = cls.spellings()
        named: dict[str, object] = {}
        for key, value in given.items():
            name = known.get(_fold(key))
            if name is None:
                raise _unknown(key, known)
            named[name] = value
        try:
            return cls.model_validate(named)
        except ValidationError as error:
            # Without the input: it may be the password.
            problems = error.errors(include_input=False, include_url=False, include_context=False)
            lines = [f"{_named(p['loc'])}{p['msg'].removeprefix('Value error, ')}" for p in problems]
            names = [str(p["loc"][0]) for p in problems if p["loc"]]
            hint = " ".join(f"{name}: {cls.help()[name]}." for name in dict.fromkeys(names))
            raise ConfigError(f"{'; '.join(lines)}.", hint=hint) from None

    @classmethod
    def from_file(cls, path: Path, overrides: Mapping[str, object]) -> Self:
        """The options of a TOML file, with `overrides` (command line, environment) before them."""
        try:
            loaded = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"configuration file {path} cannot be read: {error}.", hint="It is TOML: one line option = value each."
            ) from None
        return cls.parse({**loaded, **overrides})


def _endpoint(text: str, default_port: int) -> Endpoint:
    match = re.fullmatch(
        r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:\s]+)|([0-9A-Fa-f:]+:[0-9A-Fa-f:.]*))(?::(\d{1,5}))?", text
    )
    if match is None:
        raise ValueError(f"host {text!r} is neither name, name:port nor [address]:port")
    port = int(match[4]) if match[4] else default_port
    if not 1 <= port <= 65_535:
        raise ValueError(f"host {text!r} has a port outside 1 to 65535")
    return Endpoint(match[1] or match[2] or match[3], port)


def _named(location: tuple[int | str, ...]) -> str:
    return f"option {location[0]}: " if location else ""


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _aliases(name: str) -> tuple[str, ...]:
    # connect_timeout_s may be written connectTimeout: the unit is for readers of code.
    return (name, name.removesuffix("_s"))


def _unknown(key: str, known: Mapping[str, str]) -> ConfigError:
    near = difflib.get_close_matches(_fold(key), known, n=1, cutoff=0.5)
    hint = f"Did you mean {known[near[0]]}?" if near else f"Known options: {', '.join(dict.fromkeys(known.values()))}."
    return ConfigError(f"unknown option {key!r}.", hint=hint)


OPTIONS: dict[str, str] = ReplicaConfig.help()
"""The options that every replica has, the daemon's and one inside Spark."""


def environment(values: Mapping[str, str], names: Iterable[str] = OPTIONS) -> dict[str, Any]:
    """The options set in the environment: MARIADB_REPLICA_RELAY_DIR is relay_dir."""
    return {
        name: values[key] for name in names if (key := f"{ENVIRONMENT_PREFIX}{name.upper()}") in values and values[key]
    }
