"""Objects that travel to tasks: whole with the same version, refused before anything is unpickled with another one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from replica.errors import InstallationError
from replica.version import __version__
from streaming_source.driver import same_version
from streaming_source.driver.same_version import OfThisVersion, revived
from streaming_source.mirroring.batch.latest_rows import LatestOfTable
from streaming_source.mirroring.batch.table_rows import RowsOfTable
from streaming_source.mirroring.writers.native.table_commits import _Rewriter
from streaming_source.mirroring.writers.native.tasks import ChangesTask, CountedTask, RowsTask
from streaming_source.source.batch.planned_reader import PlannedReader
from streaming_source.source.batch.reader import BinlogFilesReader
from streaming_source.source.stream import ChangeStreamReader
from tests.fixtures.installation import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable


class Plain(OfThisVersion):
    def __init__(self) -> None:
        self.rows = [1, 2]
        self.left_at_home = object()

    def __getstate__(self) -> dict[str, object]:
        return {"rows": self.rows, "left_at_home": None}


@dataclass(frozen=True, slots=True)
class Slotted(OfThisVersion):
    number: int
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Empty(OfThisVersion):
    pass


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_an_object_comes_back_whole(dumps: Callable[[object], bytes]) -> None:
    def travelled(one: object) -> Any:
        return pickle.loads(dumps(one))  # noqa: S301

    plain = travelled(Plain())
    assert (type(plain), plain.rows, plain.left_at_home) == (Plain, [1, 2], None)
    assert travelled(Slotted(7, b"x")) == Slotted(7, b"x")
    assert travelled(Empty()) == Empty()


def test_another_version_is_refused_before_the_object_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made, (version, _) = Slotted(7).__reduce_ex__(5)
    assert made is revived
    monkeypatch.setattr(same_version, "__version__", "9.9.9")
    with pytest.raises(
        InstallationError, match=rf"has spark-mariadb-binlog 9\.9\.9 .* the driver has {version}\."
    ) as one:
        revived(version, b"what this version cannot unpickle")
    assert "Install the same version on the driver and all executors" in str(one.value)


TRAVELLERS = (
    *(ChangeStreamReader, PlannedReader, BinlogFilesReader),
    *(RowsOfTable, LatestOfTable, ChangesTask, RowsTask, CountedTask, _Rewriter),
)
_UNPICKLE = """
import pickle, sys
import replica.version
replica.version.__version__ = sys.argv[1]
print(pickle.load(sys.stdin.buffer))
"""


@pytest.mark.parametrize("kind", TRAVELLERS)
def test_what_travels_to_tasks_has_the_version_of_its_driver(kind: type) -> None:
    assert kind.__reduce_ex__ is OfThisVersion.__reduce_ex__


@pytest.mark.parametrize(
    ("version", "said"), [(__version__, "RowsOfTable("), ("9.9.9", "InstallationError: the executor")]
)
def test_a_process_with_another_version_refuses_what_one_with_the_same_takes(version: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _UNPICKLE, version],
        input=cloudpickle.dumps(RowsOfTable("shop", "orders", None)),
        capture_output=True,
        cwd=PROJECT,
        check=False,
    )
    assert said in (done.stdout + done.stderr).decode()
