"""`mariadb-replica run`: the daemon, which receives until a stop is requested or a permanent error occurs."""

from __future__ import annotations

import asyncio
import faulthandler
from typing import Final

import click
import uvloop

from replica.commands.arguments import config_reader, configured
from replica.daemon.config import DaemonConfig
from replica.daemon.logs import LogWriter
from replica.daemon.run import Daemon, Reloader
from replica.errors import ConfigError

NAME_A_FOLDER: Final = (
    "Name the folder of the relay log, on a disk that stays: --relay-dir FOLDER, or relay_dir in the file of --config."
)
"""Hint for a `run` without a relay directory."""


@click.command()
@configured(DaemonConfig)
def run(config: DaemonConfig) -> None:
    """Receive into a relay log until SIGTERM or SIGINT, or until an error that a retry cannot fix."""
    if config.relay_dir is None:
        raise ConfigError("option relay_dir is missing.", hint=NAME_A_FOLDER)
    faulthandler.enable()  # a watchdog ends a hanging daemon with SIGABRT: standard error then shows where it hung
    logs = LogWriter(style=config.log_format, level=config.log_level, cluster=config.cluster)
    logs.capture()
    try:
        # From the wake-up to the ACK this loop takes 20 us less than asyncio's own, and a client's COMMIT waits for the
        # ACK.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            reloader = Reloader(config, config_reader(DaemonConfig), logs)
            runner.run(Daemon(config, config.relay_dir, logs.logger, reloader=reloader).run())
    finally:
        logs.close()
