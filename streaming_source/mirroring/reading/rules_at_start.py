"""Check the rules and modes of a mirror at its start, against the source tables and the existing targets.

In: the session and the settings. Out: nothing. Refused with one ConfigError that names each table: a rule that its
table does not allow, and a pattern that is used by no table. Also refused is a rule, hash key or mode that differs from
that of a target, unless the table is re-snapshot. The rows that another mode would have kept are not known any more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from replica.errors import ConfigError
from replica.schema.patterns import matcher, table_text
from streaming_source.mirroring.control.control_row import DROPPED
from streaming_source.mirroring.control.control_table import mirrored_tables
from streaming_source.mirroring.reading.rule_check import checked_rule
from streaming_source.mirroring.reading.source_tables import read_source_tables
from streaming_source.transforms.kept_rule import fingerprint_of_text, kept_rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings

_SHOWN = 10
_log = logging.getLogger(__name__)


def check_rules(spark: SparkSession, settings: MirrorSettings) -> None:
    """Refuse rules that cannot be applied from this start on.

    If a table was created while the mirror was stopped and does not allow its rule, the mirror starts and logs the
    error.

    Raises:
        ConfigError: a rule is invalid for its table, or a rule or the hash key differs from that of a target.
    """
    rows = {row.name: row for row in mirrored_tables(spark, settings.names.control)}
    again = {name for name, row in rows.items() if _is_read_again(settings, row)}
    kept = [row for name, row in rows.items() if name not in again]
    changed = [row for row in kept if row.rules != kept_rule(settings.rule_of(row.name), settings.hash_key)]
    if changed:
        _refuse_changes(settings, changed)
    if not settings.rules.given:
        return
    found = read_source_tables(settings.options).tables
    wrong: list[str] = []
    for name, table in sorted(found.items()):
        if name not in rows or name in again:  # the columns of other tables follow from the stream
            try:
                checked_rule(spark, table.definition, table.keys, settings)
            except ConfigError as error:
                if rows and name not in again:  # the table is suspended with its first rows
                    _log.error("%s", error)
                else:
                    wrong.append(str(error))
    if wrong:
        raise ConfigError("\n".join(wrong[:_SHOWN]))
    _check_used(settings, {*found, *rows})


def _is_read_again(settings: MirrorSettings, row: ControlRow) -> bool:
    asked = settings.options.resnapshot
    if asked is None or asked.word == row.again:
        return False
    return matcher(asked.patterns).fits(row.name)


def _refuse_changes(settings: MirrorSettings, rows: list[ControlRow]) -> None:
    names = [table_text(row.name) for row in rows]
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    key = None if settings.hash_key is None else settings.hash_key.fingerprint
    only_key = all(
        fingerprint_of_text(row.rules) not in (None, key) and settings.rule_of(row.name).hash for row in rows
    )
    what = "hashKeyFile has another key than the one" if only_key else "the rules differ from those"
    raise ConfigError(
        f"{what} with which the targets of {shown} were created.",
        hint="Start with the earlier ones, or re-snapshot the tables with the new ones: "
        f"resnapshot={names[0]}@WORD, with a new word.",
    )


def _check_used(settings: MirrorSettings, names: Iterable[TableName]) -> None:
    used = {settings.rules.pattern_of(name) for name in names}
    for pattern, _ in settings.rules.given:
        if pattern not in used:
            raise ConfigError(
                f"the rule {pattern} applies to no table: none has that name, or an earlier pattern matches them all.",
                hint="Correct or remove it. A last pattern with * also applies to tables that are created later.",
            )


def check_modes(rows: Iterable[ControlRow], settings: MirrorSettings) -> None:
    """Refuse a mode that differs from the target's, unless the table is re-snapshot.

    Raises:
        ConfigError: there is such a table.
    """
    again = settings.options.resnapshot
    for row in rows:
        wanted = settings.rule_of(row.name).mode
        table = table_text(row.name)
        anew = again is not None and again.word != row.again and matcher(again.patterns).fits(row.name)
        if row.mode != wanted and row.state != DROPPED and not anew:
            raise ConfigError(
                f"{row.target} holds {table} in the mode {row.mode}, and its rule says {wanted}.",
                hint=f"Give it the mode {row.mode}, or create its target again in the other mode: start the mirror "
                f"with resnapshot={table}@WORD, with a new word. That deletes the rows of the target.",
            )
