"""The option schemaFile: CREATE TABLE statements of tables that neither rows nor DDL describe.

`declared_tables` returns the tables of the file. A file that cannot be read, or has other statements, is an error.
"""

from __future__ import annotations

from replica.errors import MAY_READ, ConfigError
from replica.schema.effects.history import SchemaHistory


def declared_tables(path: str | None) -> SchemaHistory | None:
    """Return the tables of the file; None if the option is not set.

    Raises:
        ConfigError: the file cannot be read.
        SchemaError: the table of a CREATE TABLE statement in it cannot be determined.
    """
    if path is None:
        return None
    try:
        return SchemaHistory.from_file(path)
    except OSError as error:
        raise ConfigError(f"schemaFile {path} cannot be read: {error.strerror}.", hint=MAY_READ) from None
