"""All checks of a configuration: a report for each server, for the servers together, and for this machine.

`check_all` runs the checks of the modules beside it. A server that cannot be reached is an error of its own report, and
the other checks still run.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from replica.commands.check import server
from replica.commands.check.continuation import altered, position, together
from replica.commands.check.machine import RelayEnd, disk, local, relay_end, secrets
from replica.commands.check.report import Report, Result
from replica.commands.check.server import ServerFacts, Us, ask_facts, basics, binlog, lag, retention, semi_sync
from replica.errors import (
    ConfigError,
    DuplicateServerIdError,
    PositionLostError,
    PrerequisiteError,
    RelayError,
    ReplicaError,
)
from replica.handshake.login.login import Login, log_in
from replica.handshake.primary.server import ServerInfo, check, refusal
from replica.relay_log.directory.identity import read_identity
from replica.relay_log.directory.lock import lock_holder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from replica.daemon.config import DaemonConfig
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
