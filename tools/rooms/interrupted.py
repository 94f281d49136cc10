"""Run a command in a new session, send Ctrl-C after it prints a text, and print the leftovers as JSON.

    python interrupted.py TEXT SECONDS COMMAND...

Run this program inside a clean room, which has no other processes. `code` is the command's exit code. `left` are the
command lines of processes that still run ten seconds later. `files` are the new files in /tmp.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PATIENCE_S = 60.0
"""How long it may take to end: Spark stops its session, the server flushes its pages."""
LATER_S = 10.0


def main() -> None:
    text, seconds, *command = sys.argv[1:]
    kept, there = [], temporary()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            kept.append(line)
            if text in line:
                break
        time.sleep(float(seconds))
        os.killpg(running.pid, signal.SIGINT)
        rest, _ = running.communicate(timeout=PATIENCE_S)
    deadline = time.monotonic() + LATER_S
    while (left := others()) and time.monotonic() < deadline:
        time.sleep(0.1)
    files = sorted(temporary() - there)
    print(json.dumps({"code": running.returncode, "left": left, "files": files, "text": "".join(kept) + rest}))


def temporary() -> set[str]:
    """Return the names in /tmp, and those in its folders."""
    return {str(path) for pattern in ("*", "*/*") for path in Path("/tmp").glob(pattern)}  # noqa: S108


def others() -> list[str]:
    """Return the command lines of all processes but this one and the room's first."""
    lines = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) not in (1, os.getpid(), os.getppid()):
            try:
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if words:
                lines.append(words)
    return lines


if __name__ == "__main__":
    main()
