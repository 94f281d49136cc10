"""Settings of a mirror as one value: options of the source, names, and policies.

In: the arguments of `mirror()`. Out: `MirrorSettings`. Refused with a ConfigError that names the argument:

- values of the wrong kind, because TOML can give a number for a name;
- options that are given twice, and misspelt arguments;
- options that would hide rows or changes of the selected tables;
- unknown policies.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ConfigError
from replica.options.values import seconds
from streaming_source.mirroring.arguments import BY_LOWER, MOST_PARALLEL, PARALLEL, check_arguments
from streaming_source.mirroring.control.target_names import TargetNames
from streaming_source.mirroring.reading.resnapshot import requests_folder
from streaming_source.mirroring.writers.choose import FORMATS
from streaming_source.mirroring.writers.native.upkeep import upkeep_properties
from streaming_source.mirroring.writers.native.writer import check_deltalake
from streaming_source.options.source_options import FORMER_NAMES, OPTIONS, SourceOptions
from streaming_source.schema.target_modes import CURRENT, live_rows
from streaming_source.sinks.delta import DELTA
from streaming_source.sinks.iceberg.catalogs import ICEBERG, kind_of, register
from streaming_source.sinks.storage import bucket_in, checked_options
from streaming_source.transforms.hashes import read_hash_key
from streaming_source.transforms.table_rules import table_rules
from streaming_source.transforms.transformed_images import NOT_NATIVE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.rows.types.types import ValuePolicy
    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.arguments import (
        OnAlter,
        OnCascade,
        OnDrop,
        OnSwap,
        OnTableError,
        OnTruncate,
        Writer,
    )
    from streaming_source.mirroring.writers.target_format import TargetFormat
    from streaming_source.transforms.hashes import HashKey
    from streaming_source.transforms.table_rules import TableRule, TableRules

JOINED_ROWS: Final = 10_000
JOINED_FOR: Final[Mapping[Writer, str]] = MappingProxyType({"native": "500ms", "spark": "2s"})
"""Longest delay between two micro-batches, by writer.

A micro-batch starts when JOINED_ROWS changes have arrived or this delay has passed, counted from the last micro-batch.
A micro-batch costs about the same for one change as for some thousand, and makes a commit in every changed table. The
first change after a quiet time does not wait.
"""
BATCH_BYTES: Final = "256m"
"""Most bytes of the binlog in a micro-batch.

This is four times the limit of other streams, because the mirror holds no micro-batch in memory. Besides the work on
its rows, each micro-batch costs some seconds of CPU time.
"""
_NOT_OURS: Final = {
    "table": "a mirror has many tables: use tables, also for one",
    "columns": "a mirror needs whole rows",
    "operations": "a mirror needs every change",
    "rowshape": "the mirror chooses the shape itself",
    "skipunchanged": "a mirror needs every change",
    "includeddl": "the mirror sets it itself",
    "includeshadowtables": "a mirror does not copy the temporary tables of schema change tools",
    "content": "a mirror reads tables and changes",
    "startingposition": "a mirror begins with a snapshot of the tables",
    "endingposition": "a mirror has no end position",
    "onschemachange": "a mirror has onAlter instead",
    "onstatementdml": "a mirror re-snapshots a table after a change without rows, see onSwap",
    "splitlargetransactions": "a mirror applies a transaction as a whole",
    "skipunpreparedxa": "a mirror must not lose rows",
    "failondataloss": "a mirror must not lose rows",
    "gtidstrictmode": "the snapshot of a mirror needs it",
    "geometry": "targets hold geometry as bytes",
    "resnapshotrequests": "the mirror has its own folder for them",
    "path": "a mirror reads from a server",
    "pushfilters": "it is for batch reads",
}
"""Options of the source that a mirror does not take, and the reason."""
_OURS: Final = {"startingPosition": "initial", "includeDdl": "true", "onStatementDml": "row"}
_OF_SERVER: Final = frozenset(
    {
        *("host", "port", "unixsocket", "user", "password", "passwordfile", "defaultsfile", "serverpublickey"),
        *("tls", "tlsca", "tlscert", "tlskey", "compress", "connecttimeout", "connectretry", "netwritetimeout"),
        *("backoffinitial", "backoffmax", "reconnectretry", "heartbeat", "reporthost", "relaymaxbytes", "minfreebytes"),
        *("invaliddates", "invalidtext", "snapshotconnections", "snapshotchunkrows", "snapshotrowspersecond"),
    }
)
"""Options for reading the server beside the stream: connection, login, and the conversion of values."""
_TRIGGERS: Final = ("processingTime", "availableNow", "once")


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """Settings of one mirror.

    Attributes:
        given: the options of the source, as Spark gets them.
        options: the same options, parsed.
        storage: `storageOptions`, checked. They have credentials.
    """

    given: Mapping[str, str]
    options: SourceOptions
    names: TargetNames
    format: TargetFormat
    checkpoint: str
    on_truncate: OnTruncate
    on_drop: OnDrop
    on_swap: OnSwap
    on_alter: OnAlter
    on_cascade: OnCascade
    parallel: int
    properties: Mapping[str, str]
    rules: TableRules
    hash_key: HashKey | None
    hash_key_file: str | None = None
    audit_every_s: float | None = None
    writer: Writer = "native"
    on_table_error: OnTableError = "suspend"
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def control_properties(self) -> dict[str, str]:
        """Properties of targets that the control table also has, because they limit the size of its log."""
        wanted = upkeep_properties({}).keys() if self.writer == "native" else ()
        return {name: self.properties[name] for name in wanted if name in self.properties}

    def rule_of(self, name: TableName) -> TableRule:
        """Return the rule of a table."""
        return self.rules.of(name)

    @property
    def hides(self) -> bool:
        """Whether a rule hides values of a table."""
        return any(rule.hides for _, rule in self.rules.given)

    @property
    def policy(self) -> ValuePolicy:
        """Policy for values that the column types cannot hold."""
        return self.options.policy

    def __repr__(self) -> str:
        return f"MirrorSettings(tables={','.join(self.options.patterns)!r}, control={self.names.control!r})"


def mirror_settings(arguments: Mapping[str, Any], source: Mapping[str, object]) -> MirrorSettings:
    """Return the checked arguments of `mirror()` as settings.

    Args:
        arguments: all arguments of `mirror()`, by name.
        source: the options of the source.

    Raises:
        ConfigError: an argument, or an option of the source, is invalid.
    """
    check_arguments(arguments)
    check_trigger(arguments["trigger"])
    source = {name: value for name, value in source.items() if value is not None}
    for name in source:
        now = FORMER_NAMES.get(name.lower(), name).lower()
        if now in _NOT_OURS:
            raise ConfigError(f"option {name} is not for a mirror: {_NOT_OURS[now]}.", hint="Remove it.")
    check_names(source)
    checkpoint = os.fspath(arguments["checkpointLocation"])
    if not checkpoint.strip():
        raise ConfigError("checkpointLocation is missing.", hint="Name a folder that belongs to this mirror alone.")
    if not 1 <= arguments["parallel"] <= MOST_PARALLEL:
        raise ConfigError(
            f"parallel={arguments['parallel']} is not from 1 to {MOST_PARALLEL}.", hint=f"The default is {PARALLEL}."
        )
    key_file = None if arguments["hashKeyFile"] is None else os.fspath(arguments["hashKeyFile"])
    ruled = table_rules(arguments["rules"], has_key=key_file is not None)
    _check_sql(ruled, source)
    kind, every = arguments["format"], arguments["auditEvery"]
    named_by = _kind(kind, arguments["icebergCatalog"])
    names, target_format = TargetNames(arguments["into"], arguments["control"], named_by), FORMATS[kind]
    if target_format.only_folders and (bucket_in(arguments["into"]) or bucket_in(names.control)):
        raise ConfigError(
            f"format={kind} shows a batch by the rename of a folder, but S3 renames objects one by one: a crash "
            "would leave a part of a batch.",
            hint="Write Delta tables (format=delta), or Parquet to a file system that renames folders, as HDFS does.",
        )
    _check_format(target_format, names, ruled, audited=every is not None)
    way = _writer(arguments["writer"], kind)
    left_out = frozenset() if way == "spark" else NOT_NATIVE
    own_properties = {name: value for name, value in target_format.own_properties.items() if name not in left_out}
    table_properties = property_texts(arguments["tableProperties"])
    bounds = upkeep_properties(table_properties) if way == "native" else {}
    given = {name: _text(value) for name, value in source.items()} | {"tables": arguments["tables"]} | _OURS
    given["resnapshotRequests"] = str(requests_folder(checkpoint))
    options = _parsed(given)
    named = {name.lower() for name in given}
    if "minrowspertrigger" not in named:
        given["minRowsPerTrigger"] = str(min(JOINED_ROWS, options.max_rows_per_trigger or JOINED_ROWS))
    if "maxbytespertrigger" not in named:
        given["maxBytesPerTrigger"] = BATCH_BYTES
    if "maxtriggerdelay" not in named:
        given["maxTriggerDelay"] = JOINED_FOR[way]
    return MirrorSettings(
        given=given,
        options=_parsed(given),
        names=names,
        format=target_format,
        checkpoint=checkpoint.rstrip("/"),
        on_truncate=arguments["onTruncate"],
        on_drop=arguments["onDrop"],
        on_swap=arguments["onSwap"],
        on_alter=arguments["onAlter"],
        on_cascade=arguments["onCascade"],
        parallel=arguments["parallel"],
        properties={**own_properties, **bounds, **table_properties},
        rules=ruled,
        hash_key=None if key_file is None else read_hash_key(key_file),
        hash_key_file=key_file,
        audit_every_s=None if every is None else _seconds("auditEvery", every),
        writer=way,
        on_table_error=arguments["onTableError"],
        storage=checked_options(arguments["storageOptions"]),
    )


def _parsed(given: Mapping[str, str]) -> SourceOptions:
    return SourceOptions.parse({name.lower(): value for name, value in given.items()})


def _check_sql(rules: TableRules, source: Mapping[str, object]) -> None:
    """Refuse `includeSql` if a rule hides values: statements contain these values as literals."""
    option = next((name for name, value in source.items() if name.lower() == "includesql" and value), None)
    if option is not None and any(rule.hides for _, rule in rules.given):
        raise ConfigError(f"option {option} would show values that the rules hide.", hint="Remove it.")


def _check_format(wanted: TargetFormat, names: TargetNames, rules: TableRules, *, audited: bool) -> None:
    """Refuse names, rules and audits that the format cannot hold.

    Tables without a rule are checked when their target is created.
    """
    given = f"format={wanted.name}"
    if wanted.only_folders and not (names.folders and "/" in names.control):
        raise ConfigError(
            f"{given} writes folders, but into or control is the name of a table.",
            hint='For example into="/lake/{database}/{table}".',
        )
    if wanted.name == ICEBERG and (names.folders or "/" in names.control):
        raise ConfigError(
            f"{given} writes tables of a catalog, but into or control is a folder.",
            hint='For example into="lake.{table}"; the catalog\'s warehouse has the files.',
        )
    modes = {rule.mode: pattern for pattern, rule in rules.given} or {CURRENT: ""}
    other = next((mode for mode in modes if mode not in wanted.modes), None)
    if other is not None:
        rule = f"the rule {modes[other]} asks for" if modes[other] else "tables without a rule have"
        modes_of = " and ".join(sorted(wanted.modes))
        raise ConfigError(
            f"{given} supports only the mode {modes_of}, but {rule} the mode {other}.",
            hint=f'Give all tables a rule: rules={{"shop.*": {{"mode": "{min(wanted.modes)}"}}}}.',
        )
    if audited and not any(live_rows(mode) for mode in wanted.modes):
        raise ConfigError(f"auditEvery compares rows, but targets with {given} hold changes.", hint="Remove it.")


def _kind(wanted: str, catalog: str | Mapping[str, object] | None) -> str:
    """Return the kind of the targets' names, and register the catalog of Iceberg targets."""
    if wanted == ICEBERG:
        return kind_of(register(catalog))
    if catalog is not None:
        raise ConfigError(f"icebergCatalog is for format=iceberg, but format={wanted}.", hint="Remove one of them.")
    return wanted


def _writer(requested: Writer | None, kind: str) -> Writer:
    """Return the writer for targets of the format `kind`."""
    if kind != DELTA:
        if requested == "native":
            raise ConfigError(f"writer=native writes only Delta tables, but format={kind}.", hint="Leave writer out.")
        return "spark"
    if requested != "spark":
        check_deltalake()
    return requested or "native"


def _seconds(name: str, value: str | float) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise ConfigError(f"{name}={value!r} {error}.") from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def batch_options(settings: MirrorSettings) -> dict[str, str]:
    """Return the options for a batch read of the same server."""
    return {name: value for name, value in settings.given.items() if name.lower() in _OF_SERVER}


def check_names(source: Mapping[str, object]) -> None:
    """Refuse options of the source that are given twice, or are a misspelt argument of `mirror()`.

    Raises:
        ConfigError: there is such an option.
    """
    known = {option.name.lower() for option in OPTIONS} | FORMER_NAMES.keys()
    seen: dict[str, str] = {}
    for name in source:
        argument = BY_LOWER.get(name.lower())
        if argument is not None:
            raise ConfigError(f"{name} is not an argument of a mirror.", hint=f"It is spelt {argument}.")
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise ConfigError(f"the options {other} and {name} are the same.", hint="Remove one of them.")
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), [*known, *BY_LOWER], n=1, cutoff=0.75)
            if near and near[0] in BY_LOWER:
                raise ConfigError(f"{name} is not an argument of a mirror.", hint=f"Did you mean {BY_LOWER[near[0]]}?")


def property_texts(properties: Mapping[str, object] | None) -> dict[str, str]:
    """Return the properties of targets as strings. A boolean becomes `true` or `false`, as Delta spells it.

    Raises:
        ConfigError: a value is a list or a table. TOML makes a table of a name that has a dot and no quotes.
    """
    made = {}
    for name, value in (properties or {}).items():
        if not isinstance(value, (str, int, float)):
            raise ConfigError(
                f"tableProperties: {name} has a value of the wrong kind.",
                hint="In a file, write names with a dot in quotes: \"delta.appendOnly\" = 'true'.",
            )
        made[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return made


def check_trigger(trigger: Mapping[str, Any] | None) -> None:
    """Refuse arguments that Spark's `trigger()` does not take.

    Raises:
        ConfigError: `trigger` is not one of Spark's triggers, or its value has the wrong kind.
    """
    if trigger is None:
        return
    right = len(trigger) == 1 and all(
        isinstance(value, str) if name == _TRIGGERS[0] else name in _TRIGGERS and value is True
        for name, value in trigger.items()
    )
    if not right:
        raise ConfigError(
            f"trigger={dict(trigger)} is not one of Spark's triggers for a mirror.",
            hint='Give {"processingTime": "5 seconds"} or {"availableNow": True}, or leave trigger out.',
        )
