"""Statements of a micro-batch that may concern a table.

In: the facts of a micro-batch. Out: the statements of a table in the order of the stream. They name the table, or its
database, or no clear table in it, or belong to sessions without a database. DML through a view names only the view, so
it concerns every table of its database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.mirroring.reading.source_tables import views
from streaming_source.mirroring.statements.alterations import changes_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.batch.batch_facts import BatchFacts, StatementRow
    from streaming_source.options.source_options import SourceOptions

NO_DATABASE = ""


def statements_of(facts: BatchFacts, name: TableName) -> list[StatementRow]:
    """Return the statements of a micro-batch that concern a table, in order, without duplicates."""
    if not (facts.statements or facts.databases):
        return []  # called for each table, and most micro-batches have none
    databases = (facts.databases.get(database, ()) for database in (name[0], NO_DATABASE))
    found = [*facts.statements.get(name, ()), *(one for statements in databases for one in statements)]
    return sorted(dict.fromkeys(found), key=lambda one: one[1:3])


def widen_views(options: SourceOptions, facts: BatchFacts, unknown: Collection[TableName]) -> None:
    """Make DML through a view a statement on its database; `unknown`: names of the micro-batch that are no tables.

    Temporary tables, and objects that were dropped since, are left out.
    """
    changed = [name for name in unknown if any(changes_rows(one.effect) for one in facts.statements.get(name, ()))]
    for name in views(options, changed) if changed else ():
        facts.databases.setdefault(name[0], []).extend(facts.statements[name])
