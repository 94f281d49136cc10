"""The command-line program `mariadb-replica`. Each command is a module of `commands/`; `dump` has its own package.

Options come from the tables in `options/config.py` and `daemon/config.py`. The command line overrides the environment
(MARIADB_REPLICA_USER), and the environment overrides the configuration file (TOML). Logs go to standard error, one
structured line per event; answers go to standard output. The exit code is that of the error (`errors.py`), or 0 after a
requested stop.
"""

from __future__ import annotations

import importlib

import click

from replica.commands.outcome import PROGRAM, call
from replica.version import __version__

COMMANDS = {
    "run": ("replica.commands.run", "run", "Receive into a relay log: the daemon."),
    "fleet": ("replica.commands.fleet", "fleet", "Run the daemons of several primaries, which share memory."),
    "status": ("replica.commands.status", "status", "Show the state of a daemon, also as an exit code."),
    "check": (
        "replica.commands.check.command",
        "check_command",
        "Check servers and this machine; show each problem with its fix.",
    ),
    "tail": ("replica.commands.tail.command", "tail", "Show live row changes, from a relay log or a primary."),
    "explain": ("replica.commands.explain.command", "explain", "Show one transaction, or why it is missing."),
    "position": ("replica.commands.position", "position", "Show the GTID position of a file and offset, or a time."),
    "purge": ("replica.commands.purge", "purge", "Remove old files of a relay log."),
    "files": ("replica.commands.files", "files", "Copy unit files, alerts, dashboard, example configuration."),
    "dump": ("replica.commands.dump.command", "dump", "Show the content of binlog files."),
}
"""Command name -> module, object, help text.

A module is imported only when its command runs, so that `status` does not wait for the import of the decoder.
"""


class _Commands(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM)
def program() -> None:
    """Replicate from a MariaDB primary into a relay log.

    Every option can also be set in the environment: --relay-dir is MARIADB_REPLICA_RELAY_DIR.
    """


def main() -> None:
    """Run the program. A `ReplicaError` becomes one line on standard error and its exit code."""
    call(program)
