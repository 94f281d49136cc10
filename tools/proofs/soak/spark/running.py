"""Queries of a Spark application that will be killed: they start after a line on stdin, and restart if they fail.

In: settings, and the DataFrame of each query. Out: the events file, with the lines warm, started, and each failure.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

POLL_S = 0.1


def keep_running(
    settings: dict[str, Any],
    wanted: list[tuple[dict[str, Any], DataFrame]],
    start: Callable[[DataFrame, dict[str, Any]], StreamingQuery],
) -> None:
    """Start all queries once a line has come on standard input, and keep them running until the process is killed."""
    with Path(settings["events"]).open("a", encoding="utf-8") as events:

        def say(**event: object) -> None:
            events.write(json.dumps(event) + "\n")
            events.flush()

        say(warm=True)
        if not sys.stdin.readline():
            return  # whoever started it is gone
        running = [(query, rows, start(rows, query)) for query, rows in wanted]
        say(started=True)
        while True:
            for place, (query, rows, handle) in enumerate(running):
                if not handle.isActive:
                    say(kind=query["kind"], failure=str(handle.exception()))
                    running[place] = query, rows, start(rows, query)
            time.sleep(POLL_S)
