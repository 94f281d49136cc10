"""Structured logs, one line for each event, written by a separate thread.

In: events with key-value pairs from any thread, and Python's own logging and warnings. Out: JSON lines (or text for
people) on a stream. The caller pays for a time stamp and a queue. Formatting and the write, which may block on a full
pipe, happen in the thread. Beyond a limit of unwritten lines, new lines are dropped, because a blocked log must not
stop the stream. The next written line reports the number of dropped lines.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

import structlog

from replica.protocol.plain_text import plain_event, plain_json

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

MAX_WAITING_LINES = 10_000
"""Maximum number of unwritten lines, which take some megabytes. A daemon logs only changes of state, so thousands of
waiting lines mean that no process reads them.
"""
FLUSH_TIMEOUT_S = 2.0
_LEVELS: Final = ("debug", "info", "warning", "error", "critical")


class LogWriter:
    """Log of this process.

    `logger` takes the program's own events, and `capture()` adds the log lines of libraries. `set_level()` may be
    called from any thread. `close()` writes the waiting lines.
    """

    def __init__(self, *, style: str, level: str, stream: TextIO | None = None, cluster: str | None = None) -> None:
        self.dropped = 0
        self._stream = stream or sys.stderr
        self._format = _formatter(style, colours=self._stream.isatty())
        self._lines: queue.Queue[EventDict | None] = queue.Queue(MAX_WAITING_LINES)
        self._thread = threading.Thread(target=self._run, name="replica-logs", daemon=True)
        self._thread.start()
        self.set_level(level)
        processors: list[Processor] = [
            self._wanted,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            _stamp,
            self._hand_over,
        ]
        every_line: dict[str, Any] = {} if cluster is None else {"cluster": cluster}
        self.logger: FilteringBoundLogger = structlog.wrap_logger(
            _Nowhere(),
            processors=processors,
            wrapper_class=structlog.make_filtering_bound_logger("debug"),
            **every_line,
        )

    def capture(self) -> None:
        """Send Python's logging (asyncio, the driver) and its warnings to the same stream."""
        logging.basicConfig(level=logging.WARNING, handlers=[_LogHandler(self.logger)], force=True)
        logging.captureWarnings(capture=True)

    def set_level(self, level: str) -> None:
        """Drop lines below this level from now on."""
        self._least = _LEVELS.index(level)

    def close(self) -> None:
        """Write the waiting lines, for at most FLUSH_TIMEOUT_S each for the queue and the thread."""
        try:
            self._lines.put(None, timeout=FLUSH_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(FLUSH_TIMEOUT_S)

    def _wanted(self, _logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
        if _LEVELS.index(name) < self._least:
            raise structlog.DropEvent
        return event

    def _hand_over(self, _logger: WrappedLogger, _name: str, event: EventDict) -> NoReturn:
        try:
            self._lines.put_nowait(event)
        except queue.Full:
            self.dropped += 1
        raise structlog.DropEvent

    def _run(self) -> None:
        said = 0
        while (event := self._lines.get()) is not None:
            if self.dropped != said:
                event["lines_dropped"], said = self.dropped - said, self.dropped
            try:
                # One write for the line and its end, because the daemons of a fleet write to the same stream.
                self._stream.write(f"{self._format(event)}\n")
                self._stream.flush()
            except (OSError, ValueError):
                self.dropped += 1  # no one reads the pipe any more: the replica continues without logs


class _Nowhere:
    """Logger that receives no line, because the last processor has handed it over."""


class _LogHandler(logging.Handler):
    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(
            record.levelno, record.getMessage().splitlines()[0], logger=record.name, exc_info=record.exc_info or False
        )


def _stamp(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    event["timestamp"] = time.time()
    return event


def _formatter(style: str, *, colours: bool) -> Any:
    as_json, as_text = (
        structlog.processors.JSONRenderer(ensure_ascii=False),
        structlog.dev.ConsoleRenderer(colors=colours),
    )

    def formatted(event: EventDict) -> Any:
        at = event["timestamp"]
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
        event["timestamp"] = f"{seconds}.{int(at % 1 * 1e6):06d}Z"
        if style == "text":
            return as_text(None, "", plain_event(None, "", event))
        return plain_json(str(as_json(None, "", event)))

    return formatted
