"""`mariadb-replica check`: all prerequisites of a replica, checked before a replica is started.

In: the options of a daemon, and optionally patterns of tables. Out: a report for each server, for several servers
together and for this machine, or JSON. The exit code is that of the first error with which a replica would end. The
command changes nothing.

`check_all` runs the checks of the modules beside it. A server that cannot be reached is an error of its own report, and
the other checks still run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from itertools import tee
from typing import TYPE_CHECKING

import click

from replica.commands.arguments import configured, gathered
from replica.commands.check import server
from replica.commands.check.continuation import altered, position, together
from replica.commands.check.machine import RelayEnd, disk, local, relay_end, secrets, spark_report
from replica.commands.check.report import Report, Result, lines
from replica.commands.check.server import ServerFacts, Us, ask_facts, basics, binlog, lag, retention, semi_sync
from replica.commands.options_page import effective, example
from replica.commands.shared_options import tables_option
from replica.daemon.config import DaemonConfig
from replica.errors import (
    ConfigError,
    DuplicateServerIdError,
    PositionLostError,
    PrerequisiteError,
    RelayError,
    ReplicaError,
    describe,
)
from replica.handshake.login.login import Login, log_in
from replica.handshake.primary.server import ServerInfo, check, refusal
from replica.native.compiling.ahead import COMPILING
from replica.relay_log.directory.identity import read_identity
from replica.relay_log.directory.lock import lock_holder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from replica.options.config import Endpoint


async def check_all(
    config: DaemonConfig,
    sources: Mapping[str, str],
    initial: Sequence[str] | None = None,
    *,
    unkeyed: bool = False,
) -> list[Report]:
    """Report on each server in the order of the configuration, on several servers together, and on the machine.

    Nothing is raised: an error in a report is the one with which a replica would end.

    Args:
        config: the options.
        sources: option name -> origin of its value.
        initial: patterns of tables, [] for all. The tables of the first server that answers are reported too. None: no
            tables.
        unkeyed: whether to check the tables for a query with snapshotUnkeyed=whole.
    """
    here = Report("this machine")
    end, us = _check_machine(config, here)
    here.results += secrets(config, sources)
    checked = await asyncio.gather(*(_check_server(config, endpoint, end, us) for endpoint in config.endpoints))
    answered = {endpoint: facts for endpoint, (_, facts) in zip(config.endpoints, checked, strict=True) if facts}
    shared = Report("the servers together", list(together(answered)))
    shared.error = _first(shared, PrerequisiteError)
    tables = (
        [await _tables(config, next(iter(answered)), initial, unkeyed=unkeyed)]
        if answered and initial is not None
        else []
    )
    return [*(report for report, _ in checked), *([shared] if shared.results else []), *tables, here]


def _check_machine(config: DaemonConfig, here: Report) -> tuple[RelayEnd | None, Us]:
    """Check this machine into the report `here`; return the end of the relay log and our identity."""
    configured, directory = "server_id" in config.model_fields_set, config.relay_dir
    end = identity = holder = None
    if directory is not None:
        try:
            holder = lock_holder(directory)
            identity = read_identity(directory)
            end = relay_end(directory, config.start)
        except RelayError as error:
            here.results.append(Result("relay log", "missing", error.message, error.hint))
        except FileNotFoundError as error:
            fix = (
                "nothing: the next start continues after the last transaction left in the log, and receives the "
                "rest again"
            )
            here.results.append(Result("relay log", "warning", f"{error.filename} is missing", fix))
        except OSError as error:
            what = f"{directory} cannot be read: {error.strerror}"
            here.results.append(Result("relay log", "missing", what, "run this as the daemon's user"))
    here.results += local(config, holder)
    if directory is not None:
        here.results += disk(config, directory)
    here.error = _first(here, RelayError)
    server_id = config.server_id if configured or identity is None else identity.server_id
    running = holder is not None and identity is not None and identity.server_id == server_id
    left_open = frozenset(one.server_id for one in identity.connections) if identity else frozenset()
    settled = configured or identity is not None
    return end, Us(server_id, configured, settled=settled, running=running, left_open=left_open)


def _first(report: Report, kind: type[ReplicaError]) -> ReplicaError | None:
    if not report.missing:
        return None
    one = report.missing[0]
    return (ConfigError if one.check == "http_listen" else kind)(f"{one.what}.", hint=f"Fix: {one.fix}.")


async def _check_server(
    config: DaemonConfig, endpoint: Endpoint, end: RelayEnd | None, us: Us
) -> tuple[Report, ServerFacts | None]:
    report = Report(str(endpoint))
    facts = None
    try:
        login = await log_in(config, endpoint)
        with contextlib.closing(login):
            found = await login.run(ask_facts())
            if isinstance(found, ServerFacts):
                facts = found
                report.results += _judge(facts, config, endpoint, us)
                if facts.info.log_bin:
                    _place(report, facts, end, await _reached(login, facts, config, end))
            info = found if isinstance(found, ServerInfo) else found.info
            report.error = _verdict(report, info, us, len(set(config.endpoints))) or report.error
    except ReplicaError as error:
        report.error = error
    return report, facts


async def _tables(config: DaemonConfig, endpoint: Endpoint, patterns: Sequence[str], *, unkeyed: bool) -> Report:
    from replica.commands.check.initial import PURPOSE, ask_initial, initial_report

    try:
        with contextlib.closing(await log_in(config, endpoint)) as login:
            return initial_report(str(endpoint), await login.run(ask_initial(patterns, unkeyed=unkeyed)))
    except ReplicaError as error:
        return Report(f"the tables of {endpoint}", error=error, tables=[], purpose=PURPOSE)


async def _reached(
    login: Login, facts: ServerFacts, config: DaemonConfig, end: RelayEnd | None
) -> Result | PositionLostError:
    found = await login.run(position(facts, end, config))
    if end is None or config.relay_dir is None or isinstance(found, PositionLostError):
        return found
    return await altered(login, config, config.relay_dir, end, facts.info) or found


def _judge(facts: ServerFacts, config: DaemonConfig, endpoint: Endpoint, us: Us) -> Iterator[Result]:
    yield from server.connection(facts, config, endpoint)
    yield from basics(facts, us, len(set(config.endpoints)))
    yield from binlog(facts, config)
    yield from server.privileges(facts)
    yield from server.server_ids(facts, us)
    yield from semi_sync(facts, config)
    yield from retention(facts)


def _place(report: Report, facts: ServerFacts, end: RelayEnd | None, found: Result | PositionLostError) -> None:
    if isinstance(found, PositionLostError):
        report.results.append(Result("position", "missing", found.message, found.hint))
        report.error = found
    else:
        report.results.append(found)
        if end is not None and found.state == "ok":
            report.results += lag(facts, end)


def _verdict(report: Report, info: ServerInfo, us: Us, hosts: int) -> ReplicaError | None:
    """Return the error with which a connection would end: first an error of the settings, then any other error."""
    report.version, report.account = info.version, info.account
    findings = check(info, us.server_id, hosts=hosts)
    if not info.is_mariadb:
        report.results += [Result(one.check, "missing", one.what, one.fix) for one in findings.unmet]
    refused = refusal(findings, info, report.subject)
    if refused is not None:
        return refused
    for one in report.missing:
        if one.check == "replicas":
            return DuplicateServerIdError(f"{one.what}.", hint=f"Fix: {one.fix}.")
        if one.check != "position":
            return PrerequisiteError(f"{one.what}.", hint=f"Fix: {one.fix}.")
    return None


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
