"""`mariadb-replica check`: all prerequisites of a replica, checked before a replica is started.

In: the options of a daemon, and optionally patterns of tables. Out: a report for each server and for this machine, or
JSON. The exit code is that of the first error with which a replica would end. The command changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import tee
from typing import TYPE_CHECKING

import click

from replica.commands.arguments import configured, gathered
from replica.commands.check.machine import spark_report
from replica.commands.check.report import lines
from replica.commands.check.run import check_all
from replica.commands.options_page import effective, example
from replica.commands.shared_options import tables_option
from replica.daemon.config import DaemonConfig
from replica.errors import ConfigError, describe
from replica.native.compiling.ahead import COMPILING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.commands.check.report import Report


def _show_example(context: click.Context, _parameter: click.Parameter, given: bool) -> None:  # noqa: FBT001
    if given:
        click.echo(example(), nl=False)
        context.exit()


@click.command(name="check")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option(
    "--initial",
    is_flag=True,
    help="Check the tables too: how a query that starts with a snapshot (startingPosition=initial) reads each.",
)
@tables_option
@click.option(
    "--unkeyed",
    is_flag=True,
    help="With --initial: for a query that reads tables without a key as a whole (snapshotUnkeyed=whole).",
)
@click.option(
    "--spark",
    is_flag=True,
    help="Check this machine's Spark too: its Python (PYSPARK_PYTHON), the packages of that Python, and Java.",
)
@click.option("--config-only", is_flag=True, help="Show every option, its value and its origin; contact no server.")
@click.option(
    "--example-config",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_example,
    help="Print a configuration file with every option and its default.",
)
@configured(DaemonConfig)
def check_command(
    config: DaemonConfig,
    *,
    as_json: bool,
    initial: bool,
    tables: list[str],
    unkeyed: bool,
    spark: bool,
    config_only: bool,
) -> None:
    """Check that the configured servers and this machine have all that a replica needs. Each problem has its fix.

    The exit code is that of the first error with which a replica would end, or 0.
    """
    if config_only:
        _show_config(config, as_json=as_json)
        return
    if tables and not initial:
        raise ConfigError("--table selects among the tables that --initial checks.", hint="Add --initial.")
    if unkeyed and not initial:
        raise ConfigError("--unkeyed applies to the tables that --initial checks.", hint="Add --initial.")
    COMPILING.interpret = True
    shown, kept = tee(_reports(config, tables if initial else None, unkeyed=unkeyed, spark=spark))
    if not as_json:
        colour = False if os.environ.get("NO_COLOR") else None
        for line in lines(shown, encoding=sys.stdout.encoding):
            click.echo(line, color=colour)
    reports = list(kept)
    code = next((report.error.exit_code for report in reports if report.error is not None), 0)
    if as_json:
        click.echo(json.dumps(_as_json(reports, code)))
    if code:
        raise SystemExit(code)


def _reports(config: DaemonConfig, tables: list[str] | None, *, unkeyed: bool, spark: bool) -> Iterator[Report]:
    """Yield each report as soon as it is complete. The report on Spark takes a second or two more, to import Spark."""
    yield from asyncio.run(check_all(config, gathered().sources, tables, unkeyed=unkeyed))
    if spark:
        yield spark_report(os.environ)


def _as_json(reports: Sequence[Report], code: int) -> dict[str, object]:
    return {
        "ok": code == 0,
        "exit_code": code,
        "reports": [
            {
                "subject": report.subject,
                "version": report.version,
                "account": report.account,
                "checks": [result._asdict() for result in report.results],
                **({} if report.tables is None else {"tables": report.tables}),
                "error": describe(report.error) if report.error else None,
            }
            for report in reports
        ],
    }


def _show_config(config: DaemonConfig, *, as_json: bool) -> None:
    rows = effective(config, gathered())
    if as_json:
        click.echo(json.dumps({row.name: {"value": row.value, "source": row.source} for row in rows}))
        return
    names, values = max(len(row.name) for row in rows), max(len(row.value) for row in rows if len(row.value) < 40)
    for row in rows:
        click.echo(f"{row.name:<{names}}  {row.value:<{values}}  {row.source}".rstrip())
