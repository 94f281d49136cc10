"""What a start of a mirror makes of a batch that an earlier start planned."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from replica.errors import ConfigError
from replica.protocol.gtid import GtidPosition
from streaming_source.mirroring.reading.beginnings import Beginnings, unmade
from streaming_source.mirroring.writers.target_format import Commit
from streaming_source.offsets.offset import SourceOffset
from tests.unit.streaming_source.mirroring.test_settings import SERVER, settings

BEFORE = SourceOffset(GtidPosition.parse("0-1-7"), GtidPosition.parse("0-1-7"), again="friday")
MONDAY = SourceOffset(GtidPosition.parse("0-1-9"), GtidPosition.parse("0-1-9"), again="monday")


def begin_again(source: dict[str, str], end: SourceOffset) -> None:
    """Let a new start of the mirror find what batch 8 reads again."""
    begun = Beginnings(settings(source=SERVER | source), None, Commit("m", 8, ""), {})  # type: ignore[arg-type]  # (no table is made)
    begun.begin_resnapshots(end, BEFORE)


@pytest.mark.parametrize("source", [{}, {"resnapshot": "shop.orders@tuesday"}])
def test_a_batch_that_reads_again_for_another_word_is_refused(source: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="@monday"):
        begin_again(source, MONDAY)


@pytest.mark.parametrize("end", [MONDAY, BEFORE])
def test_a_batch_for_the_word_of_this_start_or_of_none_is_taken(end: SourceOffset) -> None:
    begin_again({"resnapshot": "shop.orders@monday"}, end)


def test_what_spark_refuses_is_named_without_its_plan() -> None:
    error = unmade("the target `lake`.`a`", PySparkException("no such catalog;\n'CreateTable"), "Correct into.")
    assert str(error) == "the target `lake`.`a` cannot be created: no such catalog. Correct into."
