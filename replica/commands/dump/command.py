"""The command `mariadb-replica dump`: reads options, and writes one of the five outputs to standard output.

Exit codes are those of errors.py, and also 0 if damage was skipped on request. Selected rows that cannot be shown are
reported on standard error at once, and their error decides the exit code at the end.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from replica.commands.dump.outputs.count import write_counts
from replica.commands.dump.outputs.human import HumanDump
from replica.commands.dump.outputs.json_lines import Image, write_events, write_json_rows
from replica.commands.dump.outputs.sql import SqlDump
from replica.commands.outcome import standard_output
from replica.commands.shared_options import Parsed, keys_option, tables_option
from replica.errors import ConfigError
from replica.native.compile import interpret_meanwhile
from replica.options.values import instant
from replica.protocol.gtid import GtidPosition
from replica.readers.files.binlog import STANDARD_INPUT
from replica.readers.rows.names import Names
from replica.readers.rows.progress import DumpProgress, Notices, TerminalProgress
from replica.readers.rows.reading import OPTIONS, ChosenTransactions, Reading
from replica.relay_log.directory.identity import stores_lower_case
from replica.schema.patterns import refuse_capitals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.readers.files.encryption import KeyRing


@click.command(short_help="Show the contents of binlog files.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a row change; with --count one for all.")
@click.option("--events", is_flag=True, help="One JSON object an event.")
@click.option("--sql", is_flag=True, help="SQL that repeats the changes, for the mariadb client.")
@click.option("--count", is_flag=True, help="A summary: rows by table, events by type, GTIDs, times.")
@click.option(
    "--start-gtid",
    metavar="GTIDS",
    type=Parsed(GtidPosition.parse),
    help="Show transactions after these: 0-1-100 or 0-1-100,1-2-7.",
)
@click.option(
    "--stop-gtid",
    metavar="GTIDS",
    type=Parsed(GtidPosition.parse),
    help="Show transactions up to and including these; other domains are not shown.",
)
@click.option(
    "--start-time",
    metavar="TIME",
    type=Parsed(instant),
    help="Show transactions committed at or after: 2026-11-21T13:00:00Z.",
)
@click.option("--stop-time", metavar="TIME", type=Parsed(instant), help="Show transactions committed before.")
@tables_option
@click.option("--image", type=click.Choice(get_args(Image)), default="both", help="With --json: which images of a row.")
@click.option(
    "--schema",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of CREATE TABLE statements, for tables whose columns have no names in the log.",
)
@keys_option
@click.option("--skip-damaged", is_flag=True, help="Skip damaged transactions and continue after them.")
def dump(
    files: tuple[str, ...],
    *,
    as_json: bool,
    events: bool,
    sql: bool,
    count: bool,
    start_gtid: GtidPosition | None,
    stop_gtid: GtidPosition | None,
    start_time: int | None,
    stop_time: int | None,
    tables: list[str],
    image: Image,
    schema: Path | None,
    keys: KeyRing | None,
    skip_damaged: bool,
) -> None:
    """Show the content of binlog or relay log files, in the given order; - is standard input.

    Files may be compressed by gzip, zstd or xz, or encrypted by MariaDB. The default output is text like that of
    mariadb-binlog -vv. All times are UTC.
    """
    interpret_meanwhile("replica.commands.dump.rows.kernel_rows", "replica.rows.decode.kernels.kernel_variant")
    _check_outputs(as_json=as_json and not count, events=events, sql=sql, count=count)
    if files.count(STANDARD_INPUT) > 1:
        raise ConfigError("standard input can be read only once.")
    folders = {Path(file).parent for file in files if file != STANDARD_INPUT} if tables else ()
    if any(map(stores_lower_case, folders)):
        refuse_capitals(tables)
    notices = Notices()
    with _progress(files) as progress:
        reading = Reading(
            files=files,
            selection=ChosenTransactions(
                start=start_gtid or GtidPosition(),
                stop=stop_gtid or GtidPosition(),
                start_time=start_time,
                stop_time=stop_time,
            ),
            names=Names(tables, notices, OPTIONS.policy, schema, need_names=sql),
            notices=notices,
            keys=keys,
            skip_damaged=skip_damaged,
            progress=progress,
        )
        try:
            with standard_output() as out:
                if count:
                    write_counts(reading, out, as_json=as_json)
                elif as_json:
                    write_json_rows(reading, out, image=image)
                elif events:
                    write_events(reading, out)
                elif sql:
                    SqlDump(reading, out, only_rows=bool(tables)).write()
                else:
                    HumanDump(reading, out, only_rows=bool(tables)).write()
        finally:
            notices.close()
    if notices.exit_code:
        raise SystemExit(notices.exit_code)


def _check_outputs(**outputs: bool) -> None:
    chosen = [f"--{name.removeprefix('as_')}" for name, wanted in outputs.items() if wanted]
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} exclude each other.", hint="Choose one output.")


def _progress(files: Sequence[str]) -> DumpProgress:
    # A progress bar on the terminal that also shows the output would only disturb.
    return TerminalProgress(files) if sys.stderr.isatty() and not sys.stdout.isatty() else DumpProgress()
