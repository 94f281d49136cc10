"""`python -m streaming_source.auditing`: the audit as a program, for spark-submit and for schedulers.

It takes a TOML file with the arguments of `audit()`, and options that override the file. It prints the result as text
or JSON. Its exit code is 0 if all tables are equal, 1 if some are not, and 3 if all compared tables are equal but some
were left out. An error has the exit code of its type.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from replica.errors import ConfigError, ReplicaError
from replica.protocol.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streaming_source.auditing.result import AuditResult

NOT_EQUAL: Final = 1
NOT_COMPLETE: Final = 3


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="TABLE=COPY",
    help="A table and its copy: shop.orders=lake.shop_orders, or …@v12.",
)
@click.option("--mirror", metavar="TABLE", help="The control table of a mirror, instead of tables.")
@click.option("--at", metavar="POSITION", help="The GTID position of the copies. Unset: the current end of the binlog.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the source: host=db1.")
@click.option(
    "--iceberg-catalog", "catalog", metavar="NAME", help="The catalog of Iceberg copies, in PyIceberg's configuration."
)
@click.option("--repair", is_flag=True, help="Ask the mirror to write the rows that differ as the server has them.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
def main(
    file: Path | None,
    tables: Sequence[str],
    mirror: str | None,
    at: str | None,
    options: Sequence[str],
    catalog: str | None,
    *,
    repair: bool,
    as_json: bool,
) -> None:
    """Compare tables of a MariaDB server with their copies in the lakehouse, at one GTID position.

    FILE is TOML with the arguments of audit(): host, user, passwordFile, at, mirror, ignore, [tables], and
    [icebergCatalog].
    """
    try:
        arguments = read_arguments(file, tables=tables, mirror=mirror, at=at, options=options)
        arguments |= {"repair": True} if repair else {}
        arguments |= {} if catalog is None else {"icebergCatalog": catalog}
        result = _run(arguments)
    except ReplicaError as error:
        click.echo(f"audit: {one_line(str(error))}", err=True)
        raise SystemExit(error.exit_code) from None
    click.echo(result.json() if as_json else str(result))
    raise SystemExit(exit_code(result))


def exit_code(result: AuditResult) -> int:
    """Return the exit code for the verdict."""
    if not all(table.equal for table in result.tables):
        return NOT_EQUAL
    return NOT_COMPLETE if result.left_out else 0


def read_arguments(
    file: Path | None,
    *,
    tables: Sequence[str] = (),
    mirror: str | None = None,
    at: str | None = None,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the arguments of `audit()`: those of the command line override those of the file.

    Raises:
        ConfigError: the file cannot be read, or an option does not have its form.
    """
    arguments: dict[str, Any] = {} if file is None else _read(file)
    arguments |= _pairs("--option", options)
    if tables:
        arguments["tables"] = _pairs("--table", tables)
    arguments |= {name: value for name, value in (("mirror", mirror), ("at", at)) if value is not None}
    return arguments


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file} cannot be read: {error}.", hint="Write it in TOML: docs/audit.md has an example."
        ) from None


def _pairs(option: str, given: Sequence[str]) -> Mapping[str, str]:
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not (name.strip() and sign and value.strip()):
            raise ConfigError(f"{option} {text!r} is not of the form NAME=VALUE.")
        found[name.strip()] = value.strip()
    return found


def _run(arguments: Mapping[str, Any]) -> AuditResult:
    from pyspark.sql import SparkSession

    from streaming_source.auditing.call import audit

    spark = SparkSession.builder.appName("audit").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return audit(spark, **arguments)
