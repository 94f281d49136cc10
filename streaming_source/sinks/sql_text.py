"""Construction of Spark SQL text from names and values. No other module quotes names or values.

Names are in backquotes. A text is a literal of letters, digits, blanks and escapes. So no rule of a session changes it
(variable substitution, parameters of `spark.sql`, double quotes as identifiers). Names have no escapes, so SQL with
names of a server needs a session with `spark.sql.variable.substitute` off (`own_session.py`, or
`without_substitution`).

The escapes need `spark.sql.parser.escapedStringLiterals` off. `text_value` works under all settings.
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


def double_quoted(name: str) -> str:
    """Return a name in double quotes, in which the SQL of delta-rs (DataFusion) accepts any text."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a literal, which comments and properties need."""
    return "'" + _NOT_PLAIN.sub(_escape, text) + "'"


def text_value(text: str) -> str:
    """Return a text as an expression that means the same under all settings of a session."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def braced(sql: str) -> str:
    """Escape the braces of SQL for `spark.sql(…, name=…)`, where a brace begins a parameter."""
    return sql.replace("{", "{{").replace("}", "}}")


@contextmanager
def without_substitution(spark: SparkSession) -> Iterator[None]:
    """Switch variable substitution in a session off while the block runs."""
    before = spark.conf.get(SUBSTITUTE, "true")
    spark.conf.set(SUBSTITUTE, "false")
    try:
        yield
    finally:
        spark.conf.set(SUBSTITUTE, str(before))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04X}" if code <= _LAST_OF_FOUR_DIGITS else f"\\U{code:08X}"
