"""`mariadb-replica check`: ask each configured server whether it can be replicated from, before anything is started."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import click

from replica.client import describe
from replica.commands.options import configured
from replica.daemon.config import DaemonConfig
from replica.errors import ReplicaError
from replica.handshake.login import log_in
from replica.handshake.server import Findings, ServerInfo, check, inspect_server, refusal

if TYPE_CHECKING:
    from replica.config import Endpoint, ReplicaConfig


@click.command(name="check")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@configured(DaemonConfig)
def check_command(config: DaemonConfig, as_json: bool) -> None:  # noqa: FBT001
    """Ask every configured server whether it can be replicated from; all that is missing, each with its fix."""
    reports = asyncio.run(_check_all(config))
    errors = [error for _, _, _, error in reports if error is not None]
    if as_json:
        click.echo(json.dumps({"servers": [_as_json(*report) for report in reports], "ok": not errors}))
    else:
        for report in reports:
            _print(*report)
    if errors:
        raise SystemExit(errors[0].exit_code)


_Report = tuple["Endpoint", ServerInfo | None, Findings, ReplicaError | None]


async def _check_all(config: ReplicaConfig) -> list[_Report]:
    return [await _check_one(config, endpoint) for endpoint in config.endpoints]


async def _check_one(config: ReplicaConfig, endpoint: Endpoint) -> _Report:
    try:
        login = await log_in(config, endpoint)
        with contextlib.closing(login):
            server = await login.run(inspect_server(config.server_id))
    except ReplicaError as error:
        return endpoint, None, Findings((), ()), error
    findings = check(server, config.server_id)
    return endpoint, server, findings, refusal(findings, server, str(endpoint))


def _as_json(
    endpoint: Endpoint, server: ServerInfo | None, findings: Findings, error: ReplicaError | None
) -> dict[str, object]:
    return {
        "endpoint": str(endpoint),
        "version": server.version if server else None,
        "unmet": [{"what": one.what, "fix": one.fix} for one in findings.unmet],
        "warnings": [{"what": one.what, "fix": one.fix} for one in findings.warnings],
        "error": describe(error) if error else None,
    }


def _print(endpoint: Endpoint, server: ServerInfo | None, findings: Findings, error: ReplicaError | None) -> None:
    click.echo(f"{endpoint}: {f'MariaDB {server.version}' if server and server.is_mariadb else 'no MariaDB session'}")
    for mark, found in (("MISSING", findings.unmet), ("warning", findings.warnings)):
        for one in found:
            click.echo(f"  {mark}  {one.what}\n           fix: {one.fix}")
    if error is not None and not findings.unmet:
        click.echo(f"  FAILED   {error}")
    if error is None:
        click.echo("  ready to replicate")
