"""`mariadb-replica`: the replica as a program. `run` keeps a relay log up with a primary, `check` says what is missing,
`dump` shows what is in binlog files (dump/command.py).

Options come from the table in config.py, in this order of strength: command line, environment (MARIADB_REPLICA_USER),
configuration file (TOML). Logs are structured, one line an event on standard error; answers go to standard output. The
exit code is the error's (errors.py), 0 for a replica that was asked to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import structlog

from replica import __version__
from replica.client import Replica, describe
from replica.config import OPTIONS, ReplicaConfig, environment
from replica.dump.command import dump
from replica.errors import ConfigError, ReplicaError
from replica.handshake.login import log_in
from replica.handshake.server import Findings, ServerInfo, check, inspect_server, refusal
from replica.relay.writer import RelayWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger, Processor

    from replica.config import Endpoint

FLAGS = ("gtid_strict_mode", "gtid_ignore_duplicates", "annotate", "semi_sync")


def _configured(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --config and every option of the table; it is called with the checked configuration."""

    def call(config_file: Path | None, **given: Any) -> None:
        own = {name: given.pop(name) for name in list(given) if name not in OPTIONS}
        named = environment(os.environ) | {name: value for name, value in given.items() if value is not None}
        config = ReplicaConfig.from_file(config_file, named) if config_file else ReplicaConfig.parse(named)
        command(config, **own)

    call.__doc__ = command.__doc__
    call.__name__ = command.__name__
    for name, text in reversed(OPTIONS.items()):
        flag = f"--{name.removesuffix('_s').replace('_', '-')}"
        if name in FLAGS:
            flag = f"{flag}/--no-{flag.removeprefix('--')}"
        kind = {"default": None} if name in FLAGS else {"metavar": "TEXT"}
        call = click.option(flag, name, help=f"{text}.", **kind)(call)
    file = click.Path(path_type=Path, dir_okay=False)
    return click.option("--config", "config_file", type=file, help="TOML file of these options.")(call)


def _logger(style: str) -> FilteringBoundLogger:
    render: Processor = structlog.processors.JSONRenderer(ensure_ascii=False)
    if style == "text":
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        render,
    ]
    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger("info"),
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mariadb-replica")
def program() -> None:
    """Replicate from a MariaDB primary into a relay log.

    Every option can also be set in the environment: --relay-dir is MARIADB_REPLICA_RELAY_DIR.
    """


@program.command()
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@_configured
def run(config: ReplicaConfig, log_format: str) -> None:
    """Receive into a relay log until SIGTERM or SIGINT, or until an error that trying again cannot mend."""
    if config.relay_dir is None:
        raise ConfigError("option relay_dir is missing.", hint=f"relay_dir: {OPTIONS['relay_dir']}.")
    asyncio.run(_receive(config, config.relay_dir, _logger(log_format)))


async def _receive(config: ReplicaConfig, directory: Path, log: FilteringBoundLogger) -> None:
    relay = RelayWriter.open(directory, max_file_bytes=config.relay_max_file_bytes)
    task = asyncio.ensure_future(Replica(config, relay, log=log).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    log.info("started", relay_dir=str(directory), position=str(relay.position), version=__version__)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
        relay.sync()
        log.info("stopped", position=str(relay.position))
    except ReplicaError as error:
        log.error("failed", **describe(error))  # noqa: TRY400  (its words are for people, its traceback is not)
        raise
    finally:
        relay.close()


@program.command(name="check")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@_configured
def check_command(config: ReplicaConfig, as_json: bool) -> None:  # noqa: FBT001
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


program.add_command(dump)


def main() -> None:
    """The entry point: our errors become one line on standard error and their exit code."""
    try:
        program.main(standalone_mode=False)
    except ReplicaError as error:
        click.echo(f"mariadb-replica: {error}", err=True)
        raise SystemExit(error.exit_code) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(ConfigError.exit_code) from None
    except click.Abort:
        raise SystemExit(130) from None
