"""Command-line options that several commands share, with one parser for each kind of value.

In: the text of an option. Out: its typed value, so that a command receives positions, times and keys instead of text.
Refused: text that the parser rejects, as a ConfigError that begins with the option's name.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replica.errors import ConfigError
from replica.readers.files.encryption import KeyRing
from replica.schema.patterns import table_patterns

if TYPE_CHECKING:
    from collections.abc import Callable


class Parsed(click.ParamType[Any]):
    """Click type of an option whose text `parse` converts.

    `parse` raises ValueError with the end of a sentence, which the error message appends to the option's name and text.
    """

    name = "text"

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, _ctx: click.Context | None) -> Any:
        option = param.opts[0] if isinstance(param, click.Option) else self.name
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            raise ConfigError(f"{option}: {value!r} {error}.") from None
        except ConfigError as error:
            raise ConfigError(f"{option}: {error.message}", hint=error.hint) from None


def tables_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option --table to a command, which receives all patterns as `tables`."""

    def patterns(_ctx: click.Context, _param: click.Parameter, given: tuple[tuple[str, ...], ...]) -> list[str]:
        return [pattern for several in given for pattern in several]

    return click.option(
        "--table",
        "tables",
        multiple=True,
        metavar="PATTERN",
        type=Parsed(table_patterns),
        callback=patterns,
        help="database.table, * stands for any text; `my.db`.orders if a name contains a dot. May be repeated.",
    )(command)


def keys_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add --key-file and --file-key to a command, which receives the loaded key ring as `keys`."""

    @functools.wraps(command)
    def call(key_file: Path | None, file_key: str | None, **given: Any) -> None:
        command(keys=None if key_file is None else KeyRing.from_file(key_file, filekey=file_key), **given)

    call = click.option(
        "--file-key",
        envvar="MARIADB_REPLICA_FILE_KEY",
        metavar="TEXT",
        help="Pass phrase of an encrypted key file, or FILE:path; better in the environment: MARIADB_REPLICA_FILE_KEY.",
    )(call)
    return click.option(
        "--key-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Keys of encrypted files, as file_key_management has them.",
    )(call)
