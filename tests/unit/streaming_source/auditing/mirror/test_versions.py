"""The batch that a commit of a target says it is of, and the version of a target that belongs to a batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from pyspark.errors import PySparkException

from replica.errors import DataLossError
from streaming_source.auditing.mirror.from_mirror import batch_of, commits_of, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.mark.parametrize(
    ("told", "batch"),
    [
        (json.dumps({"mirror": "m1", "batch": 7, "position": "0-1-4"}), 7),
        (json.dumps({"mirror": "m2", "batch": 7}), -1),
        (json.dumps({"mirror": "m1"}), -1),
        ("a note of someone else", -1),
        ("[1, 2]", -1),
        (None, -1),
    ],
)
def test_the_batch_of_a_commit(told: str | None, batch: int) -> None:
    assert batch_of(told, "m1") == batch


class Session:
    """A session that answers DESCRIBE HISTORY, and has no catalog that says where a table lies."""

    def __init__(self, *commits: tuple[int, str | None]) -> None:
        self.commits = commits

    def sql(self, *_: str) -> Session:
        return self

    select = sql

    def __getattr__(self, name: str) -> Any:
        raise PySparkException(name)

    def collect(self) -> Sequence[tuple[int, str | None]]:
        return self.commits


def of_batch(number: int, mirror: str = "m1") -> str:
    return json.dumps({"mirror": mirror, "batch": number})


def written(folder: Path, *said: str | None) -> str:
    for told in said:
        about = CommitProperties(custom_metadata={"userMetadata": told} if told else {})
        write_deltalake(folder, pa.table({"id": [1]}), mode="append", commit_properties=about)
    return f"`delta`.`{folder}`"


COMMITS = [None, of_batch(3), of_batch(9, "m2"), of_batch(4), None, of_batch(6)]


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(("batch", "version"), [(3, 2), (4, 4), (5, 4), (6, 5), (99, 5), (2, 0)])
def test_a_batch_has_the_version_before_the_first_later_commit(
    tmp_path: Path, batch: int, version: int, *, local: bool
) -> None:
    if local:
        session, target = Session(), written(tmp_path / "t", *COMMITS)
    else:
        session, target = Session(*reversed([*enumerate(COMMITS)])), "lake.t"
    assert version_of(session, target, "m1", batch) == version  # type: ignore[arg-type]


@pytest.mark.parametrize("local", [True, False])
def test_a_batch_without_a_version_that_is_kept_is_refused(tmp_path: Path, *, local: bool) -> None:
    session = Session((7, of_batch(5)))
    target = written(tmp_path / "t", of_batch(5)) if local else "lake.t"
    with pytest.raises(DataLossError, match="no version of the batch 4"):
        version_of(session, target, "m1", 4)  # type: ignore[arg-type]


def test_a_log_that_delta_rs_cannot_read_is_read_by_spark(tmp_path: Path) -> None:
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text("no log")
    target = f"`delta`.`{tmp_path / 't'}`"
    assert commits_of(Session((3, "told"), (2, None)), target) == [(2, None), (3, "told")]  # type: ignore[arg-type]
    assert commits_of(Session((1, None)), f"`delta`.`{tmp_path / 'none'}`") == [(1, None)]  # type: ignore[arg-type]
