"""The check at load that the account may read the selected tables, with the GRANT that allows it.

`check_access` takes the options and the catalog as the account sees it. It raises if a selected table cannot be read.
Otherwise it returns the patterns of tables that the account may not see (`Unreadable`). A pattern may match tables that
the server does not list for this account. Their first row is an error that names the table (resolver.py). If rows name
their columns, or schemaFile describes the tables, REPLICATION SLAVE is enough, and the check only logs a warning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from replica.errors import AuthenticationError, SchemaError
from replica.handshake.primary.catalog import may_read, may_read_all, read_in_part
from replica.handshake.primary.server import grant
from replica.handshake.registration import Query
from replica.schema.catalog import omits_generated
from replica.schema.patterns import all_of, matcher, refuse_capitals, table_pattern, table_text
from replica.schema.text.naming import table_key
from streaming_source.selection.resolver import Unreadable, column_matcher

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.handshake.registration import Steps
    from streaming_source.options.source_options import SourceOptions

    TableName = tuple[str, str]
    from collections.abc import Mapping

    from replica.schema.table import TableSchema

_NAMED: Final = 5
"""Most statements in one message."""
_TYPE: Final = "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"

_STORED: Final = "SELECT @@lower_case_table_names"
_LOWERED: Final = "1"

_log = logging.getLogger(__name__)


def refuse_capitals_in_options(options: SourceOptions) -> Steps[None]:
    """Refuse names with capitals in the options if the server stores names in lower case.

    Such names match no table.

    Raises:
        ConfigError: there is such a name.
    """
    ((stored,),) = yield Query(_STORED)
    again = options.resnapshot.patterns if options.resnapshot is not None else ()
    if stored == _LOWERED:
        refuse_capitals((*(options.tables or ()), *(options.exclude_tables or ()), *again))


def refuse_absent(table: TableName) -> Steps[None]:
    """Raise the reason why the catalog does not have the table of the option `table`.

    Raises:
        AuthenticationError: the account may not read the table.
        SchemaError: the table does not exist, or is not a table.
    """
    name = table_text(table)
    answer = yield from may_read(*table)
    if answer == "denied":
        raise _denial((yield from _unreadable([name])), [name])
    if answer == "readable":
        ((kind,),) = (yield Query(_TYPE, table)) or ((None,),)
        if kind is not None:
            raise SchemaError(f"{name} is a {kind}, which has no rows in a binlog.", hint="Name its base table.")
    raise SchemaError(f"{name} does not exist on the server.", hint="Check the spelling.")


def check_access(options: SourceOptions, catalog: Collection[TableName]) -> Steps[Unreadable | None]:
    """Find the part of the selection that the account may not read.

    Raises:
        AuthenticationError: rows do not name their columns, and a selected table, or every table that a pattern could
            match, cannot be read.
    """
    # With lower_case_table_names, the catalog has the names in lower case.
    seen = {table_key(name, lower_case_table_names=True) for name in catalog}
    denied = [table_text(name) for name in (yield from read_in_part(catalog))]
    hiding: list[str] = []
    for pattern in options.patterns:
        parsed = table_pattern(pattern)
        if parsed.name is not None:
            listed = table_key(parsed.name, lower_case_table_names=True) in seen
            if not listed and (yield from may_read(*parsed.name)) == "denied":
                denied.append(pattern)
            continue
        database = parsed.one_database
        if not (yield from may_read_all(database)):
            everything = "*.*" if database is None else all_of(database)
            hiding.append(everything)
            if not any(matcher([pattern]).fits(one) for one in catalog):
                denied.append(everything)
    if not denied and not hiding:
        return None
    found = yield from _unreadable([*denied, *hiding])
    ((metadata,),) = yield Query("SELECT @@binlog_row_metadata")
    described = str(metadata).upper() == "FULL" or options.schema_file is not None
    if options.resnapshot_requests is not None and catalog:
        described = True  # the program that writes requests handles each table
    if denied and (options.table is not None or not described):  # the option table needs the columns
        raise _denial(found, denied)
    for pattern in found.patterns:
        _log.warning(
            "the account %s may not read all of %s: rows that do not name their columns are refused there, and types "
            "that a row does not identify (UUID, INET4, INET6, VECTOR) arrive as bytes. %s",
            found.account,
            pattern,
            found.mended_by(pattern),
        )
    return found


def _unreadable(patterns: Sequence[str]) -> Steps[Unreadable]:
    ((account,),) = yield Query("SELECT CURRENT_USER()")
    statement = grant("SELECT", account or "", on=Unreadable.PLACE)
    return Unreadable(account or "", statement, tuple(dict.fromkeys(patterns)))


def _denial(found: Unreadable, names: Sequence[str]) -> AuthenticationError:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    statements = " ".join(map(found.mended_by, names[:_NAMED]))
    return AuthenticationError(
        f"the account {found.account} has no SELECT on {', '.join(names[:_NAMED])}{more}, or not on all columns. Only "
        "an account that may read a table can see whether the table exists.",
        hint=f"{statements} (A GRANT on a whole database also covers tables that are created later.)",
    )


# `warn_of_generated` logs one line if the server omits generated columns from row images
# (`replica/schema/catalog.py`) and the query selects some. The names of these columns are in `absent` of each such
# row. In a typed column their value is NULL, so a query should omit or compute them.


SHOWN: Final = 5
"""Most columns in the message. Every table may have one."""


def warn_of_generated(options: SourceOptions, catalog: Mapping[tuple[str, str], TableSchema], version: str) -> None:
    """Log which selected columns are generated, if a server of this version omits them from updates."""
    if not omits_generated(version):
        return
    selected = column_matcher(options.columns or ())
    names = [
        f"{table.name}.{column.name}"
        for table in catalog.values()
        for column in table.columns
        if column.computed and (selected is None or selected.fits(column.name))
    ]
    if names:
        more = "" if len(names) <= SHOWN else f" and {len(names) - SHOWN} more"
        _log.warning(
            "generated columns: %s%s arrive with inserts only: MariaDB %s leaves them out of the images of updates "
            "and deletes. They are NULL there, and listed in absent. Leave them out with the option columns, and "
            "compute them from the others",
            ", ".join(names[:SHOWN]),
            more,
            version,
        )
