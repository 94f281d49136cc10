"""Do tasks run on this machine? Decides between handing them a path and handing them bytes.

The planner runs in a child process of the driver's JVM and Spark tells it nothing about the cluster, but the JVM's
command line names the master: PySpark passes every setting made before the session starts as `--conf`, spark-submit
passes `--master`. Where neither is to be seen (a master set in spark-defaults.conf) the answer is no: bytes reach
every executor, a path might not.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

_MASTER = re.compile(r"(?:spark\.master=|--master[\s=])(\S+)")


def tasks_are_local() -> bool:
    """Whether the driver's command line names a local master, so that executors see this machine's files."""
    return names_local_master(_command_line(os.getppid()))


def names_local_master(command_line: str) -> bool:
    masters: list[str] = _MASTER.findall(command_line)
    return bool(masters) and masters[-1].startswith("local")


def _command_line(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:  # no /proc on this system
        shown = subprocess.run(["ps", "-o", "args=", "-p", str(process)], capture_output=True, text=True, check=False)
        return shown.stdout
