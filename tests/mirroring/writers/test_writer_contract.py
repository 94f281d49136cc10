"""What each writer of targets holds: a batch that is broken off at any commit and tried again is in the target once.

That of the tasks is held to it in `tests/unit/streaming_source/mirroring/writers/native/test_contract.py`, and the
order of the steps, on a model in memory, in `test_ddl_applier.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.recipes.workbench import Workbench

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

RUN = """
from tests.mirroring.writers import writer_contract
from streaming_source.driver.own_session import own_session
result = writer_contract.{call}
"""


@pytest.mark.parametrize(
    "call",
    [
        "broken_off(own_session(spark), {folder!r}, writer_contract.altered_and_filled)",
        "broken_off(own_session(spark), {folder!r}, writer_contract.altered_and_filled, native=True)",
        "added_columns(own_session(spark), {folder!r})",
        "broken_off(own_session(spark), {folder!r}, writer_contract.emptied_and_filled, native=True)",
        "broken_off(own_session(spark), {folder!r}, writer_contract.read_again, soft=True)",
        "unfinished(own_session(spark), {folder!r})",
        "late_and_twice(own_session(spark), 'delta.`{folder}`')",
        "broken_off(own_session(spark), {folder!r}, writer_contract.altered_and_filled, {iceberg})",
        "broken_off(own_session(spark), {folder!r}, writer_contract.emptied_and_filled, {iceberg})",
        "broken_off(own_session(spark), {folder!r}, writer_contract.read_again, soft=True, {iceberg})",
        "iceberg_twins(own_session(spark), {folder!r})",
        "iceberg_unanswered(own_session(spark), {folder!r})",
        "parquet(own_session(spark), 'parquet.`{folder}`')",
    ],
)
def test_each_batch_is_in_the_target_once(workbench: Workbench, tmp_path: Path, call: str) -> None:
    folder = str(tmp_path / "t")
    call = call.replace("{iceberg}", f"named=writer_contract.iceberg_table(spark, {folder!r})")
    assert workbench.run(RUN.format(call=call.format(folder=folder))) == []
