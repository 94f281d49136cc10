"""Text of Spark's SQL that is made of names and values: the one place where it is made.

In: names of columns and tables, texts of a server. Out: SQL that means just these. A name stands in backquotes. A text
is a literal of letters, digits, blanks and escapes, so that no rule of a session (variable substitution, parameters of
`spark.sql`, double quotes as identifiers) finds anything in it. A name has no escapes: SQL with names of a server runs
in a session that has `spark.sql.variable.substitute` off (`own_session.py`, or `without_substitution`).

The escapes need `spark.sql.parser.escapedStringLiterals` off; `text_value` needs nothing of a session.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SUBSTITUTE: Final = "spark.sql.variable.substitute"
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9 _]")
_LAST_OF_FOUR_DIGITS: Final = 0xFFFF


def identifier(name: str) -> str:
    """Return a name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as a literal, which comments and properties need."""
    return "'" + _NOT_PLAIN.sub(_escape, text) + "'"


def text_value(text: str) -> str:
    """Return a text as an expression that means the same under every setting of a session."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def braced(sql: str) -> str:
    """Return SQL for `spark.sql(…, name=…)`, where a brace begins a parameter, as SQL that means the same."""
    return sql.replace("{", "{{").replace("}", "}}")


@contextmanager
def without_substitution(spark: SparkSession) -> Iterator[None]:
    """Leave names in a session as they are while the block runs."""
    before = spark.conf.get(SUBSTITUTE, "true")
    spark.conf.set(SUBSTITUTE, "false")
    try:
        yield
    finally:
        spark.conf.set(SUBSTITUTE, str(before))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04X}" if code <= _LAST_OF_FOUR_DIGITS else f"\\U{code:08X}"
