"""`mariadb-replica run`: the daemon. Receives until it is told to stop, or an error comes that no retry can mend."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING

import click
import structlog

from replica import __version__
from replica.client import Replica, describe
from replica.commands.options import configured
from replica.daemon.config import DAEMON_OPTIONS, DaemonConfig
from replica.errors import ConfigError, ReplicaError
from replica.relay.writer import RelayWriter

if TYPE_CHECKING:
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger, Processor


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


@click.command()
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@configured(DaemonConfig)
def run(config: DaemonConfig, log_format: str) -> None:
    """Receive into a relay log until SIGTERM or SIGINT, or until an error that trying again cannot mend."""
    if config.relay_dir is None:
        raise ConfigError("option relay_dir is missing.", hint=f"relay_dir: {DAEMON_OPTIONS['relay_dir']}.")
    asyncio.run(_receive(config, config.relay_dir, _logger(log_format)))


async def _receive(config: DaemonConfig, directory: Path, log: FilteringBoundLogger) -> None:
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
