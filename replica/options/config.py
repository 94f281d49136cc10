"""Typed table of every option of the replica. The command line, the environment and the documentation use it.

In: Python values, or text from a shell or a file. Out: a frozen `ReplicaConfig`. Refused with a `ConfigError` that
names the option: unknown names (with the nearest known one), values outside their type or range, and contradictory
options. The password is a SecretStr and must never appear in a message, a repr or a log.
"""

from __future__ import annotations

import difflib
import random
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from replica.errors import ConfigError
from replica.options.file import client_options, option_file_password
from replica.options.values import (
    Bytes,
    Endpoint,
    Hosts,
    Seconds,
    Switch,
    WholeSeconds,
    endpoint,
    one_of,
    start_of_log,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["AckPolicy", "Endpoint", "ReplicaConfig", "TlsMode", "read_options_file", "unknown_option", "variables_of"]

TlsMode = Literal["disabled", "required", "verify-ca", "verify-identity", "verify-password"]
AckPolicy = Literal["fsync", "receive"]

FIRST_RANDOM_SERVER_ID = 1 << 31
"""People number their servers from 1, so random ids come from the upper half of the 32-bit range."""
MAX_SERVER_ID = (1 << 32) - 1
ENVIRONMENT_PREFIX = "MARIADB_REPLICA_"


class ReplicaConfig(BaseModel):
    """Checked, immutable options of a replica. Make one with `parse`.

    A field has the name of its option in docs/daemon-reference.md. Options that only the daemon has are not included.
    The password never appears in a `repr`, a message or a log.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    host: Hosts = Field(("127.0.0.1",), description="The primary, or several servers tried in turn: db1,db2:3307")
    port: int = Field(3306, ge=1, le=65_535, description="TCP port of hosts without a port")
    unix_socket: str | None = Field(None, description="Unix socket of a primary on this machine, instead of host")
    user: str = Field(min_length=1, description="Account with REPLICATION SLAVE, and SELECT on the tables")
    password: SecretStr | None = Field(None, description="Password of the account; a file or the environment is safer")
    password_file: Path | None = Field(None, description="File whose first line is the password")
    defaults_file: Path | None = Field(
        None, description="MariaDB option file: [client] and [mariadb-replica]; values given elsewhere win"
    )
    tls: Annotated[TlsMode, BeforeValidator(one_of(TlsMode))] | None = Field(
        None,
        description="disabled, required, verify-ca, verify-identity, or verify-password: the certificate that an 11.4+ "
        "server made itself, checked through the account's password. Never falls back to plain text. "
        "Unset: verify-identity with a tls_ca, else disabled",
    )
    tls_ca: Path | None = Field(None, description="Certificate authorities to trust (PEM)")
    tls_cert: Path | None = Field(None, description="Client certificate (PEM)")
    tls_key: Path | None = Field(None, description="Key of the client certificate (PEM)")
    server_public_key: Path | None = Field(
        None, description="The server's RSA key (PEM): for a caching_sha2_password account without TLS"
    )
    compress: Switch = Field(False, description="Compress the connection (zlib): for a slow or paid network")
    server_id: int = Field(
        default_factory=lambda: random.SystemRandom().randint(FIRST_RANDOM_SERVER_ID, MAX_SERVER_ID),
        ge=1,
        le=MAX_SERVER_ID,
        description="Replica id, unique among all replicas of the primary; "
        "if unset, a random high number, stored in relay_dir",
    )
    report_host: str = Field("", max_length=60, description="Name shown by SHOW REPLICA HOSTS on the primary")
    start: Annotated[str, AfterValidator(lambda text: str(start_of_log(text)))] = Field(
        "latest", description="Where an empty relay log starts: latest, earliest, or a GTID position (start after it)"
    )
    connect_timeout_s: Seconds = Field(10.0, description="Longest wait for one connection and login")
    heartbeat_s: Seconds = Field(10.0, le=4_294_967.0, description="Interval of the heartbeats of an idle primary")
    net_write_timeout_s: WholeSeconds = Field(
        3600,
        ge=1,
        le=31_536_000,
        description="How long the primary waits for a replica that receives nothing before it disconnects",
    )
    gtid_strict_mode: Switch = Field(
        True,
        description="Stop before a transaction whose GTID is out of order, and refuse to start inside a gap of the "
        "primary's binlog; false: receive each transaction once, in binlog order, and resume by its place in the "
        "same server's binlog",
    )
    gtid_ignore_duplicates: Switch = Field(
        False, description="Accept a primary that has not reached the position of the replica, and wait for it"
    )
    annotate: Switch = Field(False, description="Ask for the SQL text of row changes (ANNOTATE_ROWS events)")
    semi_sync: Switch = Field(False, description="Acknowledge semi-synchronously, after the relay log is on disk")
    ack_policy: Annotated[AckPolicy, BeforeValidator(one_of(AckPolicy))] = Field(
        "fsync", description="With semi_sync, when to acknowledge: fsync or receive"
    )
    relay_dir: Path | None = Field(None, description="Folder of the relay log")
    relay_max_file_bytes: Bytes = Field(
        128 << 20, description="A relay file is closed at the first group end after this size"
    )
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
        if self.tls in ("required", "verify-password") and self.tls_ca:
            raise ValueError(f"tls={self.tls} uses no authority, so tls_ca would do nothing: use tls=verify-identity")
        if self.backoff_initial_s > self.backoff_max_s:
            raise ValueError("backoff_initial_s is longer than backoff_max_s: make it shorter")
        self.endpoints  # noqa: B018  (raises for a malformed host)
        return self

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The servers to try, in order."""
        if self.unix_socket:
            return (Endpoint("", 0, self.unix_socket),)
        return tuple(endpoint(text, self.port) for text in self.host)

    @property
    def tls_mode(self) -> TlsMode:
        """Effective TLS mode. Without `tls`, tls_ca implies verify-identity, and tls_cert alone implies required."""
        if self.tls is not None:
            return self.tls
        if self.tls_ca:
            return "verify-identity"
        return "required" if self.tls_cert else "disabled"

    def read_password(self) -> str:
        """Return the password. A password file is read at each call, so that a reconnect uses a rotated password.

        Raises:
            ConfigError: the file cannot be read.
        """
        if self.password is not None:
            return self.password.get_secret_value()
        if self.password_file is None:
            return (self.defaults_file and option_file_password(self.defaults_file)) or ""
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
        """Return option name -> help text, for the command line and the documentation."""
        return {name: field.description or "" for name, field in cls.model_fields.items()}

    @classmethod
    def default_text(cls, name: str) -> str:
        """Return the default of an option as people write it, or '' if it has none or a random one."""
        info = cls.model_fields[name]
        if info.is_required() or info.default_factory is not None or info.default in (None, ""):
            return ""
        return written(name, info.default)

    @classmethod
    def spellings(cls) -> dict[str, str]:
        """Return spelling -> option name. Spellings have no hyphens, underscores or capitals."""
        return {_fold(alias): name for name in cls.model_fields for alias in _aliases(name)}

    @classmethod
    def name_of(cls, key: str) -> str | None:
        """Return the name of the option that `key` spells, or None if there is no such option."""
        return cls.spellings().get(_fold(key))

    @classmethod
    def parse(cls, given: Mapping[str, object], *, sources: Mapping[str, str] | None = None) -> Self:
        """Check options and return the configuration that they describe.

        Args:
            given: option name -> value. A name may be spelt relay_dir, relay-dir or relayDir. A value is text, as in a
                file or on a command line, or has the Python type of the option.
            sources: origin of each key of `given`, which error messages show.

        Returns:
            The configuration.

        Raises:
            ConfigError: an unknown, missing or contradictory option, or a value that is not of its type.
        """
        known = cls.spellings()
        named: dict[str, object] = {}
        places: dict[str, str] = {}
        for key, value in given.items():
            name, place = known.get(_fold(key)), (sources or {}).get(key, "")
            if name is None:
                raise unknown_option(key, known, place)
            named[name], places[name] = value, place
        cls._add_defaults(named, places)
        try:
            return cls.model_validate(named)
        except ValidationError as error:
            # The error must not contain the input, which may be the password.
            problems = error.errors(include_input=False, include_url=False, include_context=False)
            lines = [_problem(p["type"], p["loc"], p["msg"], places) for p in problems]
            names = [str(p["loc"][0]) for p in problems if p["loc"]]
            hint = " ".join(f"{name}: {cls.help()[name]}." for name in dict.fromkeys(names))
            raise ConfigError(f"{'; '.join(lines)}.", hint=hint) from None

    @classmethod
    def _add_defaults(cls, named: dict[str, object], places: dict[str, str]) -> None:
        file = named.get("defaults_file")
        if not isinstance(file, str | Path):
            return
        path = named["defaults_file"] = Path(file).expanduser()
        for name, (value, place) in client_options(path, named, cls.name_of).items():
            named[name], places[name] = value, place

    @classmethod
    def from_file(cls, path: Path, overrides: Mapping[str, object]) -> Self:
        """Read the options of a TOML file.

        Args:
            path: the file. mariadb-replica.example.toml shows the format.
            overrides: options that override those of the file; {} for none.

        Returns:
            The configuration.

        Raises:
            ConfigError: the file cannot be read, or `parse` refuses an option.
        """
        return cls.parse({**read_options_file(path), **overrides})


def read_options_file(path: Path) -> dict[str, object]:
    """Read the keys and values of a TOML configuration file without interpreting them.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has sections.
    """
    try:
        loaded = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"configuration file {path} cannot be read: {error}.",
            hint="Write it in TOML, with one line option = value for each option.",
        ) from None
    sections = [key for key, value in loaded.items() if isinstance(value, dict)]
    if sections:
        raise ConfigError(
            f"configuration file {path} has a section [{sections[0]}].", hint="Write the options without sections."
        )
    return loaded


def _problem(kind: str, location: tuple[int | str, ...], message: str, places: Mapping[str, str]) -> str:
    if kind == "missing":
        return f"option {location[0]} is missing"
    return f"{_named(location, places)}{message.removeprefix('Value error, ')}"


def _named(location: tuple[int | str, ...], places: Mapping[str, str]) -> str:
    if not location:
        return ""
    place = places.get(str(location[0]))
    return f"option {location[0]} ({place}): " if place else f"option {location[0]}: "


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _aliases(name: str) -> tuple[str, ...]:
    # connect_timeout_s may be written connectTimeout: only the code needs the unit in the name.
    return (name, name.removesuffix("_s"))


def unknown_option(key: str, known: Mapping[str, str], place: str = "") -> ConfigError:
    """Return the error for an unknown option, with the nearest known one as its hint.

    Args:
        key: the unknown name.
        known: spelling -> option name.
        place: where the key was found, for the message.
    """
    near = difflib.get_close_matches(_fold(key), known, n=1, cutoff=0.5)
    hint = f"Did you mean {known[near[0]]}?" if near else f"Known options: {', '.join(dict.fromkeys(known.values()))}."
    return ConfigError(f"unknown option {key!r}{f' ({place})' if place else ''}.", hint=hint)


OPTIONS: dict[str, str] = ReplicaConfig.help()
"""Options of every replica: of the daemon, and of one inside Spark."""


def variables_of(names: Iterable[str]) -> dict[str, str]:
    """Return environment variable -> option name, for these options: MARIADB_REPLICA_RELAY_DIR -> relay_dir."""
    return {f"{ENVIRONMENT_PREFIX}{alias.upper()}": name for name in names for alias in reversed(_aliases(name))}
