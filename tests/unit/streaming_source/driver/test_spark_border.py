"""What leaves us for Spark: our errors without what led to them, in Spark's own processes without a traceback."""

from __future__ import annotations

import importlib
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, InstallationError
from streaming_source.driver.refused_stream import RefusedStream
from streaming_source.driver.spark_border import HIDE_TRACEBACK, RUNTIME, spark_border

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _in_a_process_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNTIME, "PYTHON_WORKER")
    monkeypatch.setenv(HIDE_TRACEBACK, "")


@spark_border()
def _refuse() -> None:
    try:
        Path("/nowhere").stat()
    except OSError as error:
        raise ConfigError("too much.", hint="Ask for less.") from error


def test_an_error_of_ours_comes_alone() -> None:
    with pytest.raises(ConfigError) as caught:
        _refuse()
    assert "/nowhere" not in "".join(traceback.format_exception(caught.value))
    assert os.environ[HIDE_TRACEBACK] == "1"


def test_in_a_driver_script_nothing_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUNTIME)
    with pytest.raises(ConfigError):
        _refuse()
    assert not os.environ[HIDE_TRACEBACK]


def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(AttributeError), spark_border():
        _ = "text".no_such  # type: ignore[attr-defined]
    with pytest.raises(KeyError), spark_border():
        raise KeyError("x")
    assert not os.environ[HIDE_TRACEBACK]


def test_a_generator_is_watched_until_its_end() -> None:
    def rows() -> Iterator[int]:
        with spark_border():
            yield 1
            raise ConfigError("no second row.")

    read = rows()
    assert next(read) == 1
    assert not os.environ[HIDE_TRACEBACK]
    with pytest.raises(ConfigError):
        next(read)
    assert os.environ[HIDE_TRACEBACK] == "1"
    early = rows()
    next(early)
    early.close()  # a LIMIT


def test_a_package_that_is_missing_is_an_error_of_ours() -> None:
    with (
        pytest.raises(InstallationError, match=r"^no_such is missing in .*Install spark"),
        spark_border(),
    ):
        importlib.import_module("no_such.part")


def test_a_refused_stream_says_why_whatever_it_is_asked() -> None:
    stream = RefusedStream(ConfigError("an end."))
    for question in (
        stream.prepareForTriggerAvailableNow,
        stream.getDefaultReadLimit,
        stream.initialOffset,
        lambda: stream.latestOffset({}, None),
        lambda: stream.partitions({}, {}),
        lambda: stream.read(None),
    ):
        with pytest.raises(ConfigError, match="an end"):
            question()
    stream.stop()  # Spark does that behind every error
