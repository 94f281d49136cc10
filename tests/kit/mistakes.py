"""The page of a newcomer's mistakes: each is made, on real servers, and its first lines are shown.

`python -m tests.kit.mistakes > docs/mistakes.md` writes the page; a test compares. What differs from run to run (ports,
folders, times) is written as a page can say it. A line of the log is shown by its event and its error.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import MariaDb, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES: Final = 3
ENDS_S: Final = 90.0
WIDTH: Final = 480
"""A line is cut here: a list of all options is not what one reads first."""
SECRET: Final = "replica-secret"
HEAD: Final = """\
# Mistakes of the first hour

Each section shows a command with one mistake, and the first lines that it prints. Of a log line, it shows event and
error. It omits lines of `check` without a finding, and the last line of `run`, which repeats the error. Spark shows the
same sentences at `.load()`, after the name of the error.

All errors with their fixes: [daemon-reference.md](daemon-reference.md#exit-codes-of-run),
[source-at-night.md](source-at-night.md#it-ended). A test compares this page with real servers;
`python -m tests.kit.mistakes` prints it again.
"""


class Mistake(NamedTuple):
    """One mistake: its name, what is typed (`run` …), and the password in the environment."""

    title: str
    typed: str
    password: str = SECRET


MISTAKES: Final = (
    Mistake("The password is wrong", "mariadb-replica run --host db1 --user repl --relay-dir /var/lib/new", "wrong"),
    Mistake("The host's name is wrong", "mariadb-replica check --host db1.invalid --user repl"),
    Mistake("Nothing listens at that port", "mariadb-replica check --host db1:3307 --user repl"),
    Mistake("`log_bin` is off", "mariadb-replica run --host nolog --user repl --relay-dir /var/lib/new"),
    Mistake("`binlog_format=STATEMENT`", "mariadb-replica check --host statements --user repl"),
    Mistake("REPLICATION SLAVE was not granted", "mariadb-replica run --host db1 --user weak --relay-dir /var/lib/new"),
    Mistake(
        "An option is misspelt", "mariadb-replica run --host db1 --user repl --relay-dir /var/lib/new --retian-s 1d"
    ),
    Mistake("An option of the file is misspelt: `retian`", "mariadb-replica run --config /etc/replica.toml"),
    Mistake("The relay log's folder is not named", "mariadb-replica run --host db1 --user repl"),
    Mistake(
        "The folder is of another server", "mariadb-replica run --host other --user repl --relay-dir /var/lib/ours"
    ),
    Mistake(
        "The port is taken",
        "mariadb-replica run --host db1 --user repl --relay-dir /var/lib/new --http-listen 127.0.0.1:9306",
    ),
    Mistake(
        "The position was purged",
        "mariadb-replica run --host db1 --user repl --relay-dir /var/lib/new --start 0-1-1",
    ),
    Mistake(
        "A time without a zone",
        "mariadb-replica position --time 2026-11-21 --host db1 --user repl",
    ),
)


class Place:
    """The servers and folders that these mistakes need."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.db1, self.other, nolog, statements = (
            stack.enter_context(server)
            for server in (
                MariaDb(None, "--binlog-row-metadata=FULL"),
                MariaDb(None, server_id=5),
                MariaDb(None, "--skip-log-bin"),
                MariaDb(None, "--binlog-format=STATEMENT", "--binlog-row-metadata=FULL"),
            )
        )
        for server in (self.db1, self.other, statements):
            server.add_user()
        self.db1.add_user("weak", grants="SELECT")
        nolog.sql(f"CREATE USER repl IDENTIFIED BY '{SECRET}'", "GRANT REPLICATION SLAVE, SELECT ON *.* TO repl")
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        closed = socket.create_server(("127.0.0.1", 0))
        closed_port = closed.getsockname()[1]
        closed.close()
        self.real = {
            "127.0.0.1:9306": f"127.0.0.1:{taken.getsockname()[1]}",
            "--host db1 ": f"--host 127.0.0.1:{self.db1.port} ",
            "--host other ": f"--host 127.0.0.1:{self.other.port} ",
            "--host nolog ": f"--host 127.0.0.1:{nolog.port} ",
            "--host statements ": f"--host 127.0.0.1:{statements.port} ",
            "--host db1:3307 ": f"--host 127.0.0.1:{closed_port} ",
            "/var/lib/": f"{self.folder}/",
            "/etc/": f"{self.folder}/",
        }
        (self.folder / "replica.toml").write_text(f'host = "127.0.0.1:{self.db1.port}"\nuser = "repl"\nretian = "1d"\n')
        self._fill()

    def _fill(self) -> None:
        """Let both servers have transactions, a folder that is of the first one, and a position that it purged."""
        for server in (self.db1, self.other):
            server.sql(
                "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT)", "INSERT INTO shop.orders VALUES (1)"
            )
        run = f"mariadb-replica run --host db1 --user repl --relay-dir {self.folder}/ours --start earliest"
        with self._started(Mistake("", run)):
            held = [sys.executable, "-m", "replica", "status", "--json", f"{self.folder}/ours"]

            def there() -> bool:
                asked = subprocess.run(held, capture_output=True, text=True, cwd=PROJECT, check=False)
                return self.db1.gtid_binlog_pos() in asked.stdout

            wait_until(there, "the folder is of db1", timeout_s=300)
        self.db1.sql("FLUSH BINARY LOGS", "INSERT INTO shop.orders VALUES (2)", "FLUSH BINARY LOGS")
        self.db1.purge_binlogs()

    @contextlib.contextmanager
    def _started(self, mistake: Mistake) -> Iterator[subprocess.Popen[str]]:
        typed = mistake.typed + " "
        for shown, real in self.real.items():
            typed = typed.replace(shown, real)
        arguments = typed.split()[1:]
        environment = os.environ | {"MARIADB_REPLICA_PASSWORD": mistake.password, "NO_COLOR": "1"}
        environment |= {"MARIADB_REPLICA_MIN_FREE_BYTES": "1m"} if " run " in typed else {}
        environment.pop("PYSPARK_PYTHON", None)
        environment["PATH"] = "/usr/bin:/bin"
        with subprocess.Popen(
            [sys.executable, "-m", "replica", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=PROJECT,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    def said(self, mistake: Mistake) -> list[str]:
        """Make the mistake; the first lines of what is said, as the page has them."""
        with self._started(mistake) as process:
            assert process.stdout is not None
            limit = threading.Timer(ENDS_S, process.kill)  # what goes on is no mistake, and shows too little
            limit.start()
            lines = [shown for line in process.stdout if (shown := self._shown(line.rstrip()))]
            limit.cancel()
        errors = {line.removeprefix("failed: ") for line in lines if line.startswith("failed: ")}
        return [line for line in lines if line.removeprefix("mariadb-replica: ") not in errors][:LINES]

    def _shown(self, line: str) -> str:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            told = event.get("message") or event.get("error") or event.get("what") or ""
            line = f"{event['event']}: {told} {event.get('hint') or event.get('fix') or ''}".rstrip(" :")
        if re.match(r"  \S ok  ", line):
            return ""
        line = re.sub(r"\('127\.0\.0\.1', \d+\)", "('10.0.0.7', 3307)", line)
        for shown, real in self.real.items():
            line = line.replace(real.removeprefix("--host ").strip(), shown.removeprefix("--host ").strip())
        for there, here in ((r"\b\d+\.\d+\.\d+-MariaDB[\w+-]*", "11.8"), (str(PROJECT), "."), (sys.prefix, ".venv")):
            line = re.sub(there if there.startswith(r"\b") else re.escape(there), here, line)
        return line if len(line) <= WIDTH else line[:WIDTH] + " …"


def page() -> str:
    """Return the page: every mistake is made."""
    with contextlib.ExitStack() as stack:
        place = Place(stack)
        parts = [HEAD]
        for mistake in MISTAKES:
            said = "\n".join(place.said(mistake))
            parts.append(f"## {mistake.title}\n\n```text\n$ {mistake.typed}\n{said}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
