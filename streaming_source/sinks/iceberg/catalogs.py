"""Iceberg catalogs of this process, and names of tables in them.

`register` takes the argument `icebergCatalog`: the name of a catalog in PyIceberg's configuration, or its properties.
The properties stay in the memory of the driver, because they may hold passwords. The name of a target has only the
name of its catalog: `iceberg:default`.`lake`.`orders`. `catalog_errors` turns errors of PyIceberg into ours, without
the values of secret properties.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ConfigError, InstallationError, ReplicaError, StorageError
from replica.protocol.plain_text import one_line
from streaming_source.sinks.sql_text import identifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

ICEBERG: Final = "iceberg"
_PREFIX: Final = f"{ICEBERG}:"
_DEFAULT: Final = "default"
"""Name of a catalog whose properties have no `name`, as PyIceberg's own default."""
_VERSIONS: Final = ((0, 12), (0, 13))
"""First version that works, and first that is untested: files and commits use functions that PyIceberg may change."""
_PART: Final = re.compile(r"`((?:[^`]|``)*)`")
_SECRET: Final = re.compile(r"password|secret|token|credential|key|header|auth|connection-string|sas", re.IGNORECASE)
_USER_IN_URI: Final = re.compile(r"(?<=://)[^/@\s]*@")
_HINT: Final = "Check the properties of the catalog (icebergCatalog): type, uri, warehouse, and the login."
_LONGEST: Final = 300
_lock = threading.Lock()
_properties: dict[str, dict[str, str]] = {}
_loaded: dict[str, Catalog] = {}


def check_pyiceberg() -> None:
    """Refuse an environment without PyIceberg, or with an untested version.

    Raises:
        InstallationError: PyIceberg is missing, or has another version.
    """
    wanted = f"pyiceberg>={_VERSIONS[0][0]}.{_VERSIONS[0][1]},<{_VERSIONS[1][0]}.{_VERSIONS[1][1]}"
    hint = f'Install it in the driver and on every executor: pip install "{wanted}".'
    try:
        from pyiceberg import __version__ as version
    except ImportError as error:
        raise InstallationError(
            f"format=iceberg needs PyIceberg, which cannot be imported: {error}.", hint=hint
        ) from None
    number = tuple(int(part) for part in version.split(".")[:2])
    if not _VERSIONS[0] <= number < _VERSIONS[1]:
        raise InstallationError(f"format=iceberg does not work with PyIceberg {version}.", hint=hint)


def register(given: str | Mapping[str, object] | None) -> str:
    """Register a catalog for this process, and return its name.

    Args:
        given: the properties of a catalog with an optional `name`; the name of a catalog that is registered, or else
            in PyIceberg's configuration; or None for the catalog `default`.

    Raises:
        ConfigError: the catalog or a property has a value of the wrong kind, or the name cannot be part of a name.
    """
    if not isinstance(given, (str, Mapping, type(None))):
        raise ConfigError("icebergCatalog is not a name, or a table of names and values.", hint=_HINT)
    properties: dict[str, str] = {}
    name = given if isinstance(given, str) else _DEFAULT
    if given is not None and not isinstance(given, str):
        for key, value in given.items():
            if not isinstance(value, (str, int, float)):
                raise ConfigError(
                    f"icebergCatalog: {key} has a value of the wrong kind.", hint="Write names with a dot in quotes."
                )
            properties[key] = str(value).lower() if isinstance(value, bool) else str(value)
        name = properties.pop("name", _DEFAULT)
    if not name or re.search(r"[`.{}/]", name):
        raise ConfigError(f"icebergCatalog: {name!r} cannot be the name of a catalog.", hint="Use letters and digits.")
    with _lock:
        if isinstance(given, Mapping) or name not in _properties:
            if _properties.get(name) != properties:
                _loaded.pop(name, None)
            _properties[name] = properties
    return name


def registered() -> list[str]:
    """Return the names of all registered catalogs, for a search by the names of tables."""
    with _lock:
        return list(_properties)


def kind_of(catalog: str) -> str:
    """Return the first part of the names of a catalog's tables."""
    return f"{_PREFIX}{catalog}"


def is_iceberg(name: str) -> bool:
    """Return True for the name of an Iceberg table, or its first part."""
    return name.lstrip("`").startswith(_PREFIX)


def name_in(catalog: str, table: str) -> str:
    """Return the full name of a table, such as `lake.orders`, in a catalog."""
    parts = [part.replace("``", "`") for part in _PART.findall(table)] if "`" in table else table.split(".")
    return ".".join(map(identifier, [kind_of(catalog), *parts]))


def parts_of(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the catalog of a table, and its identifier in the catalog."""
    catalog, *identifier = (part.replace("``", "`") for part in _PART.findall(name))
    return catalog.removeprefix(_PREFIX), tuple(identifier)


def catalog_of(catalog: str) -> Catalog:
    """Return a catalog, which threads may share.

    Raises:
        ConfigError: the properties do not describe a catalog.
        StorageError: the catalog cannot be reached.
    """
    check_pyiceberg()
    with _lock:
        found, properties = _loaded.get(catalog), _properties.get(catalog, {})
    if found is not None:
        return found
    from pyiceberg.catalog import load_catalog

    with catalog_errors(catalog):
        try:
            found = load_catalog(catalog, **properties)
        except (ValueError, ImportError, AttributeError) as error:
            raise ConfigError(
                f"the Iceberg catalog {catalog} cannot be used: {_text(error, catalog)}", hint=_HINT
            ) from None
    with _lock:
        return _loaded.setdefault(catalog, found)


def load_table(name: str) -> Table:
    """Load a table by its full name.

    Raises:
        ConfigError: there is no such table, the name has no namespace, or the catalog refuses the request.
        StorageError: the catalog cannot be reached.
    """
    catalog, identifier_in = _with_namespace(name)
    with catalog_errors(catalog, name):
        return catalog_of(catalog).load_table(identifier_in)


def table_exists(name: str) -> bool:
    """Return True if a table exists.

    Raises:
        ConfigError: the name has no namespace, or the catalog refuses the request.
        StorageError: the catalog cannot be reached.
    """
    catalog, identifier_in = _with_namespace(name)
    with catalog_errors(catalog, name):
        return catalog_of(catalog).table_exists(identifier_in)


def _with_namespace(name: str) -> tuple[str, tuple[str, ...]]:
    catalog, parts = parts_of(name)
    if len(parts) < len(("namespace", "table")) or not all(map(str.strip, parts)):
        raise ConfigError(f"{name} has no namespace and table.", hint="For example lake.orders.")
    return catalog, parts


@contextlib.contextmanager
def catalog_errors(catalog: str, what: str = "", *, retried: bool = False) -> Iterator[None]:
    """Raise errors of a catalog or of its storage as ours, without secrets.

    Args:
        catalog: the name of the catalog.
        what: the table that is read or written, for the message.
        retried: whether the caller handles commits that failed, or whose outcome is unknown. Otherwise both are
            StorageErrors.

    Raises:
        ConfigError: the catalog refuses the account or the request, or a file of a table is missing.
        StorageError: the catalog or its storage does not answer. The micro-batch can be repeated.
    """
    from pyiceberg import exceptions as of_iceberg

    try:
        yield
    except ReplicaError:
        raise
    except (of_iceberg.CommitFailedException, of_iceberg.CommitStateUnknownException) as error:
        if retried:
            raise
        raise unanswered(catalog, what, error) from None
    except (of_iceberg.NoSuchTableError, of_iceberg.NoSuchNamespaceError, of_iceberg.ValidationException) as error:
        raise ConfigError(f"{what or catalog} cannot be used: {_text(error, catalog)}", hint=_HINT) from None
    except (
        of_iceberg.UnauthorizedError,
        of_iceberg.ForbiddenError,
        of_iceberg.BadRequestError,
        of_iceberg.OAuthError,
    ) as error:
        raise ConfigError(
            f"the Iceberg catalog {catalog} refuses the request: {_text(error, catalog)}", hint=_HINT
        ) from None
    except Exception as error:
        if not _is_away(error):
            raise
        place = f" while {what} is used" if what else ""
        raise StorageError(
            f"the Iceberg catalog {catalog} or its storage does not answer{place}: {_text(error, catalog)}",
            hint=f"Make it available, and start the mirror again: it repeats the batch. {_HINT}",
        ) from None


def unanswered(catalog: str, what: str, error: Exception) -> StorageError:
    """Return the error for a commit that failed, or whose outcome the catalog does not tell.

    Args:
        catalog: the name of the catalog.
        what: the table that is written.
        error: the error of PyIceberg.
    """
    return StorageError(
        f"the Iceberg catalog {catalog} did not confirm a commit of {what}: {_text(error, catalog)}",
        hint="Check the catalog, and start the mirror again: it repeats the batch.",
    )


def _is_away(error: Exception) -> bool:
    from pyiceberg import exceptions as of_iceberg

    kinds: tuple[type[Exception], ...] = (OSError, of_iceberg.RESTError)  # errors of `requests` are OSErrors
    with contextlib.suppress(ImportError):
        from sqlalchemy.exc import SQLAlchemyError

        kinds += (SQLAlchemyError,)
    return isinstance(error, kinds)


def _text(error: Exception, catalog: str) -> str:
    """Return the first line of an error without the values of secret properties."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    with _lock:
        properties = dict(_properties.get(catalog, {}))
    for name, value in properties.items():
        if value and _SECRET.search(name):
            text = text.replace(value, "…")
        for login in _USER_IN_URI.findall(value):
            text = text.replace(login.rstrip("@"), "…")
    text = one_line(_USER_IN_URI.sub("…@", text))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def file_io(properties: Mapping[str, str], location: str) -> Any:
    """Return PyIceberg's access to the files of a table, in a task or in the driver."""
    from pyiceberg.io import load_file_io

    return load_file_io(dict(properties), location)
