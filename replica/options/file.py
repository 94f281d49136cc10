"""MariaDB's option files (`my.cnf`): parser, client options, warnings about readable secrets.

In: the path of a file. Out: its settings in order; an include is replaced by the settings of the included file. Quotes,
escapes, comments and includes follow mysys/my_default.c, which Python's configparser does not support.

Refused: a file that every user of the machine may write, and a file that cannot be read or is not UTF-8. An option
outside of a group and includes deeper than MAX_DEPTH are refused too. A relative include is resolved against the folder
of the including file.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.errors import MAY_READ, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MAX_DEPTH: Final = 10
"""Maximum depth of nested includes, as in my_default.c."""
MAX_FILE_BYTES: Final = 1 << 20
"""Maximum size of an option file. Real option files have a few hundred lines; a larger file is the wrong file."""
_COMMENTS: Final = ("#", ";")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "s": " ", '"': '"', "'": "'", "\\": "\\"}
_SPACE: Final = " \t\n\v\f\r"


@dataclass(frozen=True, slots=True)
class Setting:
    """One line `name=value`. A missing value (None) differs from an empty one."""

    group: str
    name: str
    value: str | None = field(repr=False)
    place: str
    """File and line, for messages."""


def read_option_file(path: Path) -> list[Setting]:
    """Return every setting of the file and its includes, in the order in which they take effect.

    Raises:
        ConfigError: the file is refused, see the module docstring. The message names file and line, never the line's
            text.
    """
    return list(_settings(path, 0))


def _settings(path: Path, depth: int) -> Iterator[Setting]:
    if depth > MAX_DEPTH:
        raise ConfigError(
            f"option file {path} is included {depth} levels deep.", hint="Remove the cycle of !include lines."
        )
    group: str | None = None
    for number, raw in enumerate(_read(path).split("\n"), 1):
        line, place = raw.strip(_SPACE), f"{path}:{number}"
        if not line or line.startswith(_COMMENTS):
            continue
        if line.startswith("!"):
            for included in _included(line, path, place):
                yield from _settings(included, depth + 1)
        elif line.startswith("["):
            name, end, _ = line[1:].partition("]")
            if not end:
                raise ConfigError(f"{place}: a group's name has no closing bracket.", hint="Write it like [client].")
            group = name.rstrip(_SPACE)
        elif group is None:
            raise ConfigError(f"{place}: an option is before the first group.", hint="Begin with a line [client].")
        else:
            name, equals, value = _without_comment(line).partition("=")
            yield Setting(group, name.rstrip(_SPACE), _value(value) if equals else None, place)


def _read(path: Path) -> str:
    try:
        status = path.stat()
        if status.st_mode & stat.S_IWOTH:
            raise ConfigError(f"option file {path} is writable by every user.", hint=f"chmod o-w {path}")
        if status.st_size > MAX_FILE_BYTES:
            raise ConfigError(
                f"option file {path} has {status.st_size} bytes, too many for an option file.", hint=MAY_READ
            )
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"option file {path} cannot be read: {error}.", hint=MAY_READ) from None


def _included(line: str, path: Path, place: str) -> list[Path]:
    directive, _, rest = line.replace("\t", " ").partition(" ")
    target = path.parent / rest.strip(_SPACE)
    if not rest.strip(_SPACE) or directive not in ("!include", "!includedir"):
        raise ConfigError(
            f"{place}: only !include FILE and !includedir FOLDER may begin with '!'.",
            hint="Correct or remove that line.",
        )
    if directive == "!include":
        return [target]
    try:
        return sorted(found for found in target.iterdir() if found.suffix == ".cnf" and found.is_file())
    except OSError as error:
        raise ConfigError(f"{place}: the folder cannot be read: {error}.", hint=MAY_READ) from None


def _without_comment(line: str) -> str:
    """Return the line up to a '#' outside of quotes."""
    quote, escaped = "", False
    for at, character in enumerate(line):
        if character in "'\"" and not escaped:
            quote = "" if quote == character else quote or character
        if not quote and character == "#":
            return line[:at]
        escaped = bool(quote) and character == "\\" and not escaped
    return line


def _value(text: str) -> str:
    text = text.strip(_SPACE)
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    parts: list[str] = []
    characters = iter(text)
    for character in characters:
        following = next(characters, "") if character == "\\" else ""
        # A backslash before any other character, or at the end, is a literal backslash.
        parts.append(_ESCAPES.get(following, character + following) if following else character)
    return "".join(parts)


# The groups of every client and [mariadb-replica] are read in the order of the file. Unknown names in the shared groups
# belong to other programs and are ignored; in [mariadb-replica] they are refused. The password stays in the file and is
# read at each login, so that a change takes effect.
#
# A TLS option that cannot be honoured is refused in any group. Without it the login would be less safe than the file
# says. A password without a value is refused too, because clients ask for it on a terminal.


OWN_GROUP: Final = "mariadb-replica"
GROUPS: Final = ("client", "client-server", "client-mariadb", OWN_GROUP)
HOME_FILE: Final = "~/.my.cnf"

_NAMES: Final = {
    "user": "user",
    "host": "host",
    "port": "port",
    "socket": "unix_socket",
    "ssl-ca": "tls_ca",
    "ssl-cert": "tls_cert",
    "ssl-key": "tls_key",
    "connect-timeout": "connect_timeout_s",
}
_SWITCHES: Final = ("ssl", "ssl-verify-server-cert", "compress")
_NOT_HONOURED: Final = {
    "ssl-capath": "Use ssl-ca with a file of certificates, or tls.",
    "ssl-cipher": "OpenSSL's own choice of safe ciphers is used; to allow fewer, set ssl_cipher on the server.",
    "ssl-crl": "Use tls=verify-identity, and replace revoked certificates.",
    "ssl-crlpath": "Use tls=verify-identity, and replace revoked certificates.",
    "ssl-fp": "Use ssl-ca with the server's certificate, or tls=verify-password.",
    "ssl-fplist": "Use ssl-ca with the server's certificate, or tls=verify-password.",
}

_TLS_STEMS: Final = ("ssl", "tls")

_FORMS: Final = (("skip-", "0"), ("disable-", "0"), ("enable-", "1"))
_PREFIXES: Final = ("loose-", "skip-", "disable-", "enable-", "maximum-")
_MODES: Final = ("disabled", "required", "verify-ca", "verify-identity")
"""Modes of MySQL's ssl-mode that the replica has too. PREFERRED is refused, because it falls back to plain text."""
_VERSIONS: Final = ("tlsv1.0", "tlsv1.1", "tlsv1.2", "tlsv1.3")
_SAFE_VERSIONS: Final = frozenset(_VERSIONS[2:])
_HINT_TLS: Final = (
    "Known options are ssl, ssl-ca, ssl-cert, ssl-key, ssl-verify-server-cert, ssl-mode and tls-version; in the group "
    "[mariadb-replica] also tls, tls-ca, tls-cert and tls-key."
)
_ON, _OFF = frozenset({"1", "on", "true", "yes"}), frozenset({"0", "off", "false", "no"})


def home_file() -> Path | None:
    """Return the path of the user's own option file, or None if there is none."""
    path = Path(HOME_FILE).expanduser()
    return path if path.is_file() else None


def client_options(
    path: Path, given: Mapping[str, object], name_of: Callable[[str], str | None]
) -> dict[str, tuple[object, str]]:
    """Return the options that the file adds to those `given`: name -> (value, file and line).

    Args:
        path: the option file.
        given: options by name. They override the options in the file that contradict them.
        name_of: maps any spelling of an option of the replica to its name.

    Raises:
        ConfigError: the file, or an option in it, is refused.
    """
    found: dict[str, tuple[object, str]] = {}
    switches: dict[str, str] = {}
    tls_place = ""
    for setting in _relevant(path):
        name, value = _plain(setting)
        if name in ("password", "passwd"):
            _password(setting)
        elif name in _SWITCHES:
            switches[name], tls_place = _switch(setting, value), setting.place
            if name == "compress":
                found[name] = (switches[name], setting.place)
        elif name == "ssl-mode":
            switches[name], tls_place = _mode(setting), setting.place
        elif name == "protocol":
            switches[name] = (value or "").lower()
        elif option := _option(setting, name, name_of):
            found[option] = ("true" if value is None else value, setting.place)
            if option in ("tls_ca", "tls_cert", "tls_key"):
                switches["ssl"], tls_place = "1", setting.place  # as in MariaDB's client, even after a skip-ssl
    mode = _tls(switches, with_authority="tls_ca" in found)
    if mode:
        found.setdefault("tls", (mode, tls_place))
    return _compatible(found, given, switches.get("protocol", ""))


def option_file_password(path: Path) -> str | None:
    """Return the password in the file, or None if it has none."""
    found = None
    for setting in _relevant(path):
        if _plain(setting)[0] in ("password", "passwd"):
            found = _password(setting)
    return found


def _relevant(path: Path) -> Iterable[Setting]:
    return (setting for setting in read_option_file(path) if setting.group in GROUPS)


def _option(setting: Setting, name: str, name_of: Callable[[str], str | None]) -> str | None:
    """Return the replica's name for the setting, or None if it belongs to another program."""
    if name in _NOT_HONOURED:
        raise ConfigError(f"{setting.place}: {name} cannot be honoured.", hint=_NOT_HONOURED[name])
    if name == "tls-version":
        _check_versions(setting)
        return None
    if name in _NAMES:
        return _NAMES[name]
    option = name_of(name) if setting.group == OWN_GROUP else None
    if option is None and _is_of_tls(name):
        raise ConfigError(f"{setting.place}: {setting.name!r} is not a known TLS option.", hint=_HINT_TLS)
    if setting.group != OWN_GROUP:
        return None
    if option is None or option == "defaults_file":
        raise ConfigError(f"{setting.place}: unknown option {name!r}.", hint="See mariadb-replica run --help.")
    return option


def _is_of_tls(name: str) -> bool:
    name = name.lower()
    while prefix := next((one for one in _PREFIXES if name.startswith(one)), ""):
        name = name.removeprefix(prefix)
    return name.startswith(_TLS_STEMS)


def _mode(setting: Setting) -> str:
    mode = (setting.value or "").lower().replace("_", "-")
    if mode not in _MODES:
        raise ConfigError(
            f"{setting.place}: {setting.name} is not one of {', '.join(map(_as_in_mysql, _MODES))}.",
            hint="PREFERRED is refused, because it continues in plain text if the server offers no TLS.",
        )
    return mode


def _as_in_mysql(mode: str) -> str:
    return mode.upper().replace("-", "_")


def _check_versions(setting: Setting) -> None:
    """Refuse a list of TLS versions that lacks 1.2 or 1.3.

    The replica always uses both versions. It cannot honour a list that excludes one of them.
    """
    named = {one.strip().lower() for one in (setting.value or "").split(",")}
    if not _SAFE_VERSIONS <= named <= set(_VERSIONS):
        raise ConfigError(
            f"{setting.place}: {setting.name} cannot be honoured: TLS 1.2 and 1.3 are always enabled.",
            hint="Write TLSv1.2,TLSv1.3 or leave it out; to allow fewer, set tls_version on the server.",
        )


def _plain(setting: Setting) -> tuple[str, str | None]:
    """Return the name as MariaDB spells it, without the prefixes that MariaDB allows on any switch, and the value."""
    name, value = setting.name.replace("_", "-").removeprefix("loose-"), setting.value
    for prefix, implied in _FORMS:
        if name.startswith(prefix) and name.removeprefix(prefix) in _SWITCHES and value is None:
            return name.removeprefix(prefix), implied
    return name, value


def _password(setting: Setting) -> str:
    if setting.value is None:
        raise ConfigError(
            f"{setting.place}: password has no value, and a replica has no terminal to ask for it.",
            hint="Write password=..., or password= for an empty one.",
        )
    return setting.value


def _switch(setting: Setting, value: str | None) -> str:
    text = "1" if value is None else value.lower()
    if text not in _ON | _OFF:
        raise ConfigError(f"{setting.place}: {setting.name} is neither on nor off.")
    return text


def _tls(words: Mapping[str, str], *, with_authority: bool) -> str | None:
    """Return the TLS mode that the client's switches ask for.

    None means that there are no switches, or that `tls_ca` alone decides.
    """
    verify = words.get("ssl-verify-server-cert")
    if "ssl-mode" in words:
        return _of_mode(words["ssl-mode"], words, with_authority=with_authority)
    if words.get("ssl") in _OFF:
        return "disabled"
    if not verify and "ssl" not in words:
        return None
    if verify in _ON:
        return "verify-identity"
    if verify in _OFF:
        return "verify-ca" if with_authority else "required"
    return None if with_authority else "required"


def _of_mode(mode: str, words: Mapping[str, str], *, with_authority: bool) -> str:
    """Return the safest mode that MySQL's ssl-mode and MariaDB's switches ask for together.

    Raises:
        ConfigError: one of them forbids what the other demands.
    """
    verify = words.get("ssl-verify-server-cert") in _ON
    if (mode == "disabled" and verify) or (mode != "disabled" and words.get("ssl") in _OFF):
        other = "ssl-verify-server-cert" if verify else "skip-ssl"
        raise ConfigError(f"ssl-mode={_as_in_mysql(mode)} contradicts {other}.", hint="Remove one of them.")
    if mode != "disabled" and verify:
        return "verify-identity"
    # As in MySQL: a certificate authority is given in order to verify with it.
    return "verify-ca" if mode == "required" and with_authority else mode


def _compatible(
    found: dict[str, tuple[object, str]], given: Mapping[str, object], protocol: str
) -> dict[str, tuple[object, str]]:
    """Return the options without those that are given elsewhere or contradict given options.

    A file may name both a socket and a host. The rules of MariaDB's clients choose one of them.
    """
    explicit = {name for name, value in given.items() if value is not None}
    dropped = set(explicit)
    if explicit & {"host", "port"}:
        dropped.add("unix_socket")
    elif "unix_socket" in explicit:
        dropped |= {"host", "port"}
    elif "unix_socket" in found:
        host = found.get("host", ("localhost", ""))[0]
        local = protocol == "socket" or (protocol != "tcp" and host == "localhost")
        dropped |= {"host", "port"} if local else {"unix_socket"}
    if explicit & {"tls", "tls_ca", "tls_cert"}:
        dropped.add("tls")
    mode = given.get("tls") or ("" if "tls" in dropped else found.get("tls", ("", ""))[0])
    if mode == "disabled":
        dropped |= {"tls_ca", "tls_cert", "tls_key"}
    elif mode in ("required", "verify-password"):
        dropped.add("tls_ca")
    if explicit & {"password", "password_file"}:
        dropped |= {"password", "password_file"}
    return {name: value for name, value in found.items() if name not in dropped}


def exposed(paths: Iterable[Path | None]) -> list[str]:
    """Return one warning for each file that every user of the machine may read.

    None and missing files give no warning.
    """
    found = []
    for path in dict.fromkeys(paths):
        try:
            readable = path is not None and path.stat().st_mode & stat.S_IROTH
        except OSError:
            readable = False  # the code that opens the file reports the error better
        if readable:
            found.append(f"{path} holds a secret and can be read by every user of this machine: chmod 600 {path}")
    return found
