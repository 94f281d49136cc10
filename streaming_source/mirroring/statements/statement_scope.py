"""The tables of a mirror that a statement of a batch is about.

In: the facts of a batch. Out: the statements of a table, in the order of the stream: those that name it, those that
name its database or no clear table there, and those that were made in no database. A change of rows through a view
names the view alone, so it is about every table of its database.
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
    """Return the statements of a batch that are about a table, in order, each once."""
    if not (facts.statements or facts.databases):
        return []  # asked for each table of a mirror, and few batches have any
    databases = (facts.databases.get(database, ()) for database in (name[0], NO_DATABASE))
    found = [*facts.statements.get(name, ()), *(one for statements in databases for one in statements)]
    return sorted(dict.fromkeys(found), key=lambda one: one[1:3])


def widen_views(options: SourceOptions, facts: BatchFacts, unknown: Collection[TableName]) -> None:
    """Make changes of rows through a view statements on its database; `unknown`: names of the batch that are no tables.

    Temporary tables, and what is gone by now, stay out.
    """
    changed = [name for name in unknown if any(changes_rows(one.effect) for one in facts.statements.get(name, ()))]
    for name in views(options, changed) if changed else ():
        facts.databases.setdefault(name[0], []).extend(facts.statements[name])
