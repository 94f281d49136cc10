"""Names of targets: the template `into`, filled with the database and name of a source table.

In: the template. It is a table name such as "lake.{database}_{table}", or a folder such as "/lake/{database}/{table}"
for sessions without a persistent catalog. Out: names as Spark SQL takes them, with every part in backquotes, and
folders with their format before them. Refused: a template without {table}, or with other braces or backquotes, and two
source tables with one target name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError
from replica.schema.patterns import table_text
from streaming_source.schema.spark_names import catalog_key
from streaming_source.sinks.iceberg.catalogs import is_iceberg
from streaming_source.sinks.sql_text import identifier

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.schema.known_tables import TableName

CONTROL: Final = "mirror_control"
_NOT_IN_PATHS: Final = re.compile(r"[^\w.-]")
_ONLY_DOTS: Final = re.compile(r"^\.+$")
"""Path parts that would name another folder, such as `..`."""
_EXAMPLE: Final = 'For example into="lake.{database}_{table}".'
_FOLDERS: Final = "Give the full path of a folder, /lake/{database}/{table}, or its URL, s3://…."
_IN_NO_NAME: Final = re.compile(r"[/\\~:]")
_PLACE: Final = re.compile(r"\{(?:database|table)\}")
_BARE: Final = re.compile(r"[^`{}]+")


class TargetNames:
    """Names of the targets and of the control table.

    `kind` is the format of folder targets, or `iceberg:` with the name of a catalog. The latter is the first part of
    all names, and such a catalog makes its namespaces itself.
    """

    def __init__(self, into: str, control: str | None = None, kind: str = "delta") -> None:
        self._kind = kind
        self._catalog = [kind] if is_iceberg(kind) else []
        self.folders = _is_folder(into)
        self._parts = [into.strip()] if self.folders else into.strip().split(".")
        for part in self._parts:
            if not _BARE.fullmatch(_PLACE.sub("x", part)):
                raise ConfigError(f"into={into!r} is not a name with {{database}} and {{table}} in it.", hint=_EXAMPLE)
            if not self.folders and _IN_NO_NAME.search(part):
                raise ConfigError(f"into={into!r} is neither the name of a table nor a folder.", hint=_FOLDERS)
        if "{table}" not in into:
            raise ConfigError(f"into={into!r} has no {{table}}: all tables would go into one.", hint=_EXAMPLE)
        parts = self._own_control(into) if control is None else self._given_control(control.strip())
        self.control = quoted([*self._catalog, *parts])
        own = not self._catalog and len(parts) > 1 and not _is_folder(parts[-1])
        self.control_namespace = quoted(parts[:-1]) if own else None

    def target(self, name: TableName) -> str:
        """Return the name of the target of a source table."""
        if self.folders:
            return quoted([self._kind, self._filled(self._parts[0], _in_path(name))])
        return quoted([*self._catalog, *(self._filled(part, name) for part in self._parts)])

    def namespace(self, name: TableName) -> str | None:
        """Return the namespace of a target, which Spark creates.

        None stands for the session's current namespace, for folders, and for catalogs of Iceberg.
        """
        if self.folders or self._catalog:
            return None
        return quoted(self._filled(part, name) for part in self._parts[:-1]) if len(self._parts) > 1 else None

    def key(self, name: TableName) -> str:
        """Return a key that is equal for source tables with the same target.

        Folders are compared byte by byte, table names by the rules of the catalog.
        """
        return self.target(name) if self.folders else catalog_key(self.target(name))

    def meetings(self, names: Iterable[TableName]) -> dict[TableName, ConfigError]:
        """Return an error for each source table whose target belongs to another source table.

        The first of these source tables by name keeps the target and gets no error.
        """
        taken: dict[str, TableName] = {}
        found = {}
        for name in sorted(names):
            other = taken.setdefault(self.key(name), name)
            if other != name:
                found[name] = self.meeting(other, name)
        return found

    def meeting(self, other: TableName, name: TableName) -> ConfigError:
        """Make the error for two source tables with the same target."""
        return ConfigError(
            f"{table_text(other)} and {table_text(name)} would both become {self.target(name)}.",
            hint="Choose a template that gives them different names, or leave one out (excludeTables).",
        )

    def _own_control(self, into: str) -> list[str]:
        if self.folders:
            return [self._kind, f"{into.strip().partition('{')[0].rpartition('/')[0]}/{CONTROL}"]
        space = self._parts[:-1]
        if any(_PLACE.search(part) for part in space):
            raise ConfigError(
                f"into={into!r} has no fixed namespace for the control table.",
                hint='Name one: control="lake.mirror_control".',
            )
        return [*space, CONTROL]

    def _given_control(self, control: str) -> list[str]:
        if not all(_BARE.fullmatch(part) for part in control.split(".")):
            raise ConfigError(
                f"control={control!r} is not the name of a table.", hint="For example lake.mirror_control."
            )
        return [self._kind, control] if _is_folder(control) else control.split(".")

    def _filled(self, part: str, name: TableName) -> str:
        # one pass: a table's name may itself contain {table}
        return _PLACE.sub(lambda place: name[place[0] == "{table}"], part)


def _is_folder(name: str) -> bool:
    return name.strip().startswith("/") or "://" in name


def _in_path(name: TableName) -> TableName:
    """Return a table name with only characters that are safe in paths; `meetings` refuses names that become equal."""
    database, table = (_ONLY_DOTS.sub("_", _NOT_IN_PATHS.sub("_", part)) for part in name)
    return database, table


def quoted(parts: Iterable[str]) -> str:
    """Return a name of these parts as SQL takes it."""
    return ".".join(map(identifier, parts))
