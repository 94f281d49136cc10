"""Spark's comparison of names: columns of a DataFrame or a target, and tables of its catalog.

`spark_column_key` is for columns: two columns with equal keys cannot be in one target. `catalog_key` is for tables and
namespaces. MariaDB's own rules are in replica/schema/text/naming.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

_DOTTED_I = "i\u0307"  # lower case of U+0130


def spark_column_key(name: str) -> str:
    """Return a key that is equal for two names that Spark may take for one column.

    With spark.sql.caseSensitive=false, the analyzer looks up a column by its lower case (`AttributeSeq`) and compares
    it by `equalsIgnoreCase`. Delta and Parquet refuse duplicates by lower case. Names that are equal by any of these
    rules have one key. `equalsIgnoreCase` equates the Kelvin sign with `k` and the long s with `s`, and lower case only
    the former.
    """
    if name.isascii():
        return name.lower()
    return "".join(map(_ignoring_case, name.lower().replace(_DOTTED_I, "i")))


def refuse_clash(table: str, names: Iterable[str]) -> None:
    """Refuse two columns of a table that Spark takes for one.

    Raises:
        SchemaError: there are two such columns.
    """
    taken: dict[str, str] = {}
    for name in names:
        other = taken.setdefault(spark_column_key(name), name)
        if other != name:
            raise SchemaError(
                f"{table} has the columns {other} and {name}, which the server distinguishes and Spark does not.",
                hint="Rename one of them on the server, leave the table out (excludeTables), or read it as VARIANT "
                "(tables), or with one of the two (columns).",
            )


def catalog_key(name: str) -> str:
    """Return the name as Spark's session catalog compares it: in lower case (`SessionCatalog.formatTableName`)."""
    return name.lower()


def _ignoring_case(character: str) -> str:
    """Return the lower case of the upper case, like Java's `String.regionMatches`.

    Both mappings are of one character.
    """
    upper = character.upper()
    if len(upper) != 1:
        upper = character.title() if len(character.title()) == 1 else character
    lower = upper.lower()
    return lower if len(lower) == 1 else "i"  # only U+0130 has more
