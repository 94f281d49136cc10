"""The option schemaFile: tables by their CREATE TABLE statements, where neither rows nor DDL tell their columns.

In: the path. Out: the tables of the file. Refused: a file that cannot be read, or holds statements of another kind.
"""

from __future__ import annotations

from replica.errors import MAY_READ, ConfigError
from replica.schema.effects.history import SchemaHistory


def declared_tables(path: str | None) -> SchemaHistory | None:
    """Return the tables of the file; None where the option is not set.

    Raises:
        ConfigError: the file cannot be read.
        SchemaError: a statement in it does not tell which table it makes.
    """
    if path is None:
        return None
    try:
        return SchemaHistory.from_file(path)
    except OSError as error:
        raise ConfigError(f"schemaFile {path} cannot be read: {error.strerror}.", hint=MAY_READ) from None
