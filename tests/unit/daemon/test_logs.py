from __future__ import annotations

import io
import json
import logging
import os
import threading
import warnings
from typing import Any

import pytest

from replica.daemon import logs
from replica.daemon.logs import LogWriter
from tests.fixtures.mariadb import wait_until


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is written however long the machine stands still meanwhile."""
    monkeypatch.setattr(logs, "FLUSH_TIMEOUT_S", 60.0)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_events_are_json_lines_with_the_time_of_the_call() -> None:
    stream = io.StringIO()
    writer = LogWriter(style="json", level="info", stream=stream)
    writer.logger.debug("not wanted")
    writer.logger.info("connected", endpoint="db1:3306", text="ü")
    writer.close()
    (line,) = lines(stream)
    timestamp = line.pop("timestamp")
    assert line == {"event": "connected", "endpoint": "db1:3306", "text": "ü", "level": "info"}
    assert len(timestamp) == len("2026-11-21T18:00:00.000000Z")


def test_another_level_counts_from_then_on_for_everybody_who_logs() -> None:
    stream = io.StringIO()
    writer = LogWriter(style="json", level="warning", stream=stream)
    log = writer.logger
    log.info("not wanted")
    writer.set_level("debug")
    log.debug("now it is")
    writer.set_level("error")
    log.warning("not any more")
    log.error("always")
    log.critical("always too")
    writer.close()
    assert [line["event"] for line in lines(stream)] == ["now it is", "always", "always too"]


def test_a_line_is_written_with_its_end_in_one_piece() -> None:
    """Daemons of a fleet share a stream, which may have no buffer (PYTHONUNBUFFERED)."""
    pieces: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            return len(text)

    writer = LogWriter(style="json", level="info", stream=Stream())
    writer.logger.info("connected")
    writer.logger.info("caught up")
    writer.close()
    assert [json.loads(piece)["event"] for piece in pieces] == ["connected", "caught up"]
    assert all(piece.endswith("\n") for piece in pieces)


def test_a_cluster_has_its_name_in_every_line() -> None:
    stream = io.StringIO()
    writer = LogWriter(style="json", level="info", stream=stream, cluster="shop")
    writer.logger.info("connected")
    writer.close()
    assert [(line["event"], line["cluster"]) for line in lines(stream)] == [("connected", "shop")]


def test_text_for_people() -> None:
    stream = io.StringIO()
    writer = LogWriter(style="text", level="debug", stream=stream)
    writer.logger.debug("connected", endpoint="db1:3306")
    writer.close()
    assert "connected" in stream.getvalue()
    assert "endpoint=db1:3306" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_a_traceback_is_one_line() -> None:
    stream = io.StringIO()
    writer = LogWriter(style="json", level="info", stream=stream)
    try:
        int("a bug")
    except ValueError:
        writer.logger.exception("internal error")
    writer.close()
    (line,) = lines(stream)
    assert "ValueError: invalid literal" in line["exception"]


def test_pythons_own_logging_and_warnings_go_the_same_way() -> None:
    stream = io.StringIO()
    root, before = logging.getLogger(), list(logging.getLogger().handlers)
    writer = LogWriter(style="json", level="info", stream=stream)
    try:
        writer.capture()
        logging.getLogger("asyncio").error("Task exception was never %s", "retrieved")
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.warn("an old call", stacklevel=1)
    finally:
        logging.captureWarnings(capture=False)
        root.handlers[:] = before
        writer.close()
    # What other tests have left behind in this process may say something of its own.
    said = lines(stream)
    (first,) = [line for line in said if line["event"] == "Task exception was never retrieved"]
    assert (first["level"], first["logger"]) == ("error", "asyncio")
    assert [line for line in said if "an old call" in line["event"]]


def test_a_reader_that_stands_still_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING_LINES", 10)
    read, write = os.pipe()
    with os.fdopen(write, "w") as full:
        os.set_blocking(write, True)
        writer = LogWriter(style="json", level="info", stream=full)
        for number in range(3000):  # more than a pipe holds
            writer.logger.info("filler", text="x" * 100, number=number)
        assert writer.dropped > 0
        taken: list[str] = []

        def drain() -> None:
            with os.fdopen(read) as source:
                taken.extend(source)

        reader = threading.Thread(target=drain)
        reader.start()
        wait_until(lambda: not writer._lines.qsize(), "the lines that waited are taken")
        writer.logger.info("after all")
        writer.close()
    reader.join()
    said = [json.loads(line) for line in taken]
    assert sum(line.get("lines_dropped", 0) for line in said) == writer.dropped
    assert said[-1]["event"] == "after all"


def test_a_reader_that_is_gone_stops_nobody() -> None:
    read, write = os.pipe()
    os.close(read)
    gone = os.fdopen(write, "w")
    writer = LogWriter(style="json", level="info", stream=gone)
    writer.logger.info("to nobody")
    writer.close()
    with pytest.raises(BrokenPipeError):
        gone.close()
    assert writer.dropped == 1
