"""The options of a table that Spark's catalog holds: CREATE TABLE t USING `mariadb-binlog` OPTIONS (…).

In: what Spark hands over for such a table: each of its options twice, as NAME and as option.NAME, and beside them its
provider, owner, location, comment and properties. Out: the options alone, as a reader that was never in a catalog has
them. When such a table is read, Spark (up to 4.3) passes nothing of all this, but what the query itself names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

WITHOUT_OPTIONS: Final = (
    "Of a table that was made by CREATE TABLE … USING, Spark (up to 4.3) passes none of its options when it is read: "
    "name them in the query, SELECT … FROM t WITH (host='…', …) or spark.read.options(…).table('t'), or use CREATE "
    "TEMPORARY VIEW … USING instead."
)
_PREFIX: Final = "option."


def plain_options(given: Mapping[str, str], known: Container[str]) -> Mapping[str, str]:
    """Return the options among `given`; `known`: names of options, in lower case.

    A plain NAME wins over its option.NAME: a query over the table may have given another value.
    """
    prefixed = {key[len(_PREFIX) :]: value for key, value in given.items() if key.lower().startswith(_PREFIX)}
    if not prefixed:
        return given
    plain = {key: value for key, value in given.items() if key.lower() in known}
    named = {key.lower() for key in plain}
    return plain | {key: value for key, value in prefixed.items() if key.lower() not in named}
