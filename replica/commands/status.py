"""`mariadb-replica status`: state of the daemon, whether it is up, hung or down; scripts use the exit code.

In: a relay directory (the daemon's status file, the lock, the end of the log), several, or the daemon's address. Out: a
page for people, or one JSON object: the status record with `verdict`. Several daemons have a line each. Nothing is
written, and the primary is not queried.
"""

from __future__ import annotations

import http.client
import importlib
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import click

from replica.commands.arguments import config_option, gather
from replica.daemon.config import DaemonConfig
from replica.daemon.http import read_token
from replica.daemon.status.page import page, span
from replica.daemon.status.record import StatusRecord, read_status
from replica.daemon.status.verdict import (
    BEHIND,
    HEALTHY,
    NO_ROOM,
    NOT_CONNECTED,
    NOT_RUNNING,
    SILENT,
    Verdict,
    judge,
    running,
)
from replica.errors import MAY_READ, ConfigError, DisconnectedError, ProtocolError, RelayError, ReplicaError, describe
from replica.protocol.plain_text import one_line
from replica.relay_log.directory.lock import lock_holder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.relay_log.location import RelayHead


WORST_FIRST: Final = (NOT_RUNNING, SILENT, NO_ROOM, NOT_CONNECTED, BEHIND, HEALTHY)
"""Exit codes of `status` by urgency. The code of an error comes before all of them."""


class DaemonState(NamedTuple):
    """Folder of one daemon, and the verdict or error that was found there."""

    folder: Path
    record: StatusRecord | None
    found: Verdict | ReplicaError

    @property
    def exit_code(self) -> int:
        return self.found.exit_code


def ordered(daemons: Sequence[DaemonState]) -> list[DaemonState]:
    """Return the daemons, the worst first."""
    ranks = {code: rank for rank, code in enumerate(WORST_FIRST)}
    return sorted(daemons, key=lambda one: ranks.get(one.exit_code, -1))


def lines(daemons: Sequence[DaemonState]) -> Iterator[str]:
    """Yield a line for each daemon, in the given order, and a line with the number of healthy ones."""
    width = max(len(str(one.folder)) for one in daemons)
    clusters = [one.record.cluster if one.record else "" for one in daemons]
    column = max(map(len, clusters))
    for one, cluster in zip(daemons, clusters, strict=True):
        colour = "green" if one.exit_code == HEALTHY else "yellow" if one.exit_code >= NOT_CONNECTED else "red"
        name = f"{one_line(cluster):<{column}}  " if column else ""
        label = click.style(_label(one), fg=colour)
        yield f"{one_line(str(one.folder)):<{width}}  {name}{label}{one_line(_detail(one))}"
    healthy = sum(one.exit_code == HEALTHY for one in daemons)
    yield f"{healthy} of {len(daemons)} healthy"


def _label(one: DaemonState) -> str:
    return getattr(one.found, "word", type(one.found).__name__)


def _detail(one: DaemonState) -> str:
    reason = getattr(one.found, "reason", None)
    if reason is None:
        return f": {one.found}"
    if reason:
        return f": {reason}"
    lag_s = None if one.record is None else one.record.behind.seconds
    return "" if lag_s is None else f", {span(lag_s)} behind"


ANSWER_TIMEOUT_S: Final = 5.0
LISTENS_ELSEWHERE: Final = "The daemon is down, hangs, or listens elsewhere: on its machine, ask with --relay-dir."
MAX_ANSWER_BYTES: Final = 8 << 20
"""Maximum size of an answer in bytes. A record has some kilobytes; with a thousand readers and domains it has less than
one megabyte.
"""


@click.command(name="status")
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path(path_type=Path))
@click.option("--relay-dir", "relay_dir", metavar="FOLDER", help="Folder of the daemon's relay log.")
@click.option("--url", metavar="URL", help="Ask the daemon at its http_listen instead: http://host:port.")
@click.option("--token-file", type=click.Path(path_type=Path), help="With --url: the daemon's http_token_file.")
@click.option("--tls-ca", type=click.Path(path_type=Path), help="With --url https: authorities to trust (PEM).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@config_option("TOML file of the daemon; only its relay_dir is used.")
def status(
    folders: tuple[Path, ...],
    *,
    relay_dir: str | None,
    url: str | None,
    token_file: Path | None,
    tls_ca: Path | None,
    config_file: Path | None,
    as_json: bool,
) -> None:
    """Show the state of a daemon: position, lag, acknowledgements, relay log, readers.

    FOLDER is the same as --relay-dir. Each of several folders has one line, and the worst decides the exit code.

    Exit code: 0 healthy, 3 not running, 4 running but not responding, 10 not connected, 11 behind, 12 paused because
    the disk or the relay log is full.
    """
    if sum(map(bool, (relay_dir, url, folders))) > 1:
        raise ConfigError("--relay-dir, --url and folders exclude each other.")
    if len(folders) > 1:
        _show_several(folders, as_json=as_json)
    relay_dir = str(folders[0]) if folders else relay_dir
    head = None
    if url:
        record: StatusRecord | None = _fetch_record(url, token_file, tls_ca)
        verdict = running(record) if record else None
    else:
        directory = _directory(relay_dir, config_file)
        record, head, verdict = _read_state(directory)
    if verdict is None:
        raise ProtocolError("the daemon returned no record.")
    click.echo(json.dumps(_as_json(record, head, verdict)) if as_json else page(record, head, verdict, time.time()))
    raise SystemExit(verdict.exit_code)


def _show_several(folders: Sequence[Path], *, as_json: bool) -> NoReturn:
    daemons, objects = [], []
    for folder in folders:
        try:
            record, head, verdict = _read_state(folder)
            daemons.append(DaemonState(folder, record, verdict))
            objects.append({"folder": str(folder), **_as_json(record, head, verdict)})
        except ReplicaError as error:
            daemons.append(DaemonState(folder, None, error))
            objects.append({"folder": str(folder), "error": describe(error)})
    code = ordered(daemons)[0].exit_code
    if as_json:
        click.echo(json.dumps({"exit_code": code, "daemons": objects}))
    else:
        click.echo("\n".join(lines(daemons)))
    raise SystemExit(code)


def _directory(relay_dir: str | None, config_file: Path | None) -> Path:
    found = gather(DaemonConfig, {"relay_dir": relay_dir}, os.environ, config_file).values.get("relay_dir")
    if not found:
        raise ConfigError("no daemon is named.", hint="Name its relay log's folder (--relay-dir), or its --url.")
    return Path(str(found))


def _read_state(directory: Path) -> tuple[StatusRecord | None, RelayHead | None, Verdict]:
    """Read the state from the daemon's files, which works even if the daemon hangs."""
    try:
        if not directory.is_dir():
            raise RelayError(
                f"{directory} is not a folder.", hint="Check that it is the relay_dir of the daemon, on this machine."
            )
        holder, record = lock_holder(directory), read_status(directory)
        verdict = judge(record, holder=holder, now=time.time())
        head = _log_end(directory) if verdict.exit_code in (NOT_RUNNING, SILENT) else None
    except OSError as error:
        raise RelayError(f"{directory} cannot be read: {error.strerror}.", hint="Ask as the daemon's user.") from None
    if record is None and head is None and holder is None:
        raise RelayError(f"{directory} holds no relay log.", hint="Check that it is the relay_dir of the daemon.")
    return record, head, verdict


def _log_end(directory: Path) -> RelayHead | None:
    # Only if the daemon cannot answer: this module loads the compiler, which takes a second.
    head: RelayHead | None = importlib.import_module("replica.relay_log.directory.head").read_head(directory)
    return head


def _why(where: str, reason: object) -> str:
    """Return the hint for a missing answer. The daemon at the other end may use the other scheme."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return "Name the file of the authority that signed its http_tls_cert, or that certificate itself: --tls-ca."
    if isinstance(reason, ssl.SSLError):
        return "Without http_tls_cert a daemon speaks plain text: ask with http://."
    if isinstance(reason, http.client.RemoteDisconnected) and where.startswith("http:"):
        return "With http_tls_cert a daemon speaks TLS: ask with https://."
    return LISTENS_ELSEWHERE


def _fetch_record(url: str, token_file: Path | None, tls_ca: Path | None) -> StatusRecord:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url!r} is not a URL.", hint="Write the daemon's http_listen like http://127.0.0.1:9306.")
    where = url.removesuffix("/").removesuffix("/status") + "/status"
    request = urllib.request.Request(where)  # noqa: S310  (http and https only)
    if token_file is not None:
        # The token must not follow a redirect, whose target may belong to anyone.
        request.add_unredirected_header("Authorization", f"Bearer {read_token(token_file)}")
    try:
        trusted = None if tls_ca is None else ssl.create_default_context(cafile=tls_ca)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"--tls-ca {tls_ca} cannot be used: {error}.", hint=MAY_READ) from None
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S, context=trusted) as answer:  # noqa: S310
            return StatusRecord.model_validate_json(answer.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        hint = "Name the daemon's http_token_file: --token-file." if error.code == HTTPStatus.UNAUTHORIZED else ""
        raise DisconnectedError(
            f"{where} answers {error.code} {error.reason}.", hint=hint or LISTENS_ELSEWHERE
        ) from None
    except (OSError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", error)
        raise DisconnectedError(f"{where} does not answer: {reason}.", hint=_why(where, reason)) from None
    except ValueError:
        raise ProtocolError(f"{where} does not return the status of a replica of this version.") from None


def _as_json(record: StatusRecord | None, head: RelayHead | None, verdict: Verdict) -> dict[str, Any]:
    end = head and {"gtid": str(head.position), "relay": str(head.location), "time": head.timestamp or None}
    return {
        "verdict": verdict._asdict(),
        "log_end": end,
        "status": record.model_dump(mode="json") if record else None,
    }
