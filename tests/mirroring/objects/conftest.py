"""A Spark driver that reaches a private S3 server, through a proxy with faults, and mirrors into buckets."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from tests.fixtures.http_server import HttpServerError
from tests.fixtures.jars import JarsMissingError
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.object_store import ObjectStore, object_store_jars
from tests.mirroring.mirrors import Mirrored, fill_shop
from tests.mirroring.session import session_settings
from tests.recipes.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BUCKET = "lake"
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    try:
        object_store_jars()
        with ObjectStore(tmp_path_factory.mktemp("store")) as running:
            running.make_bucket(BUCKET)
            yield running
    except (HttpServerError, JarsMissingError) as error:
        pytest.fail(str(error), pytrace=False)


def s3_settings(folder: Path, store: ObjectStore, endpoint: str | None = None) -> dict[str, str]:
    """Settings of a session with Delta tables in the store."""
    settings = session_settings(folder) | store.spark_settings(endpoint)
    settings.pop("spark.sql.streaming.checkpointFileManagerClass")  # the default, as users have it
    # On the class path of the JVM: Spark would copy a jar of 690 MB for its tasks.
    return settings | {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, object_store_jars())),
        "spark.hadoop.fs.s3a.attempts.maximum": "3",
        "spark.hadoop.fs.s3a.connection.timeout": "10s",
    }


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    """A server with two tables of 30 rows, for the tests of one module."""
    with MariaDb("11.8") as running:
        fill_shop(running, "a", "b")
        yield running


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory, store: ObjectStore) -> Iterator[Workbench]:
    folder = tmp_path_factory.mktemp("objects")
    with Workbench(s3_settings(folder, store), folder, {}) as bench:
        yield bench


class InBucket(Mirrored):
    """A mirror whose targets, control table and checkpoint are in a bucket."""

    store: ObjectStore
    bucket: str = BUCKET

    def states(self) -> dict[str, tuple[str, str | None]]:
        listed = self.rows("mirror_control", "source_table, state, error")
        return {name: (state, error) for name, state, error in listed}

    def writers(self) -> dict[str, str | None]:
        return dict(self.rows("mirror_control", "source_table, writer"))

    def rows(self, table: str, columns: str = "*") -> list[list[Any]]:
        """Rows of a target or of the control table, as delta-rs reads them."""
        place = f"s3://{self.bucket}/{self.lake}/{table}"
        opened = DeltaTable(place, storage_options=self.store.options())
        read = pa.table(QueryBuilder().register("t", opened).execute(f"SELECT {columns} FROM t").read_all())
        return [list(row.values()) for row in read.to_pylist()]

    def written_by(self, table: str) -> list[str]:
        """What made the commits of a target, the newest first."""
        opened = DeltaTable(f"s3://{self.bucket}/{self.lake}/{table}", storage_options=self.store.options())
        return [str(one.get("engineInfo", one.get("clientVersion", ""))).partition(":")[0] for one in opened.history()]

    def target(self, table: str) -> list[list[str | None]]:
        try:
            found = self.rows(table)
        except DeltaError:  # Spark wrote a feature that delta-rs lacks
            return super().target(table)
        rows = [[None if value is None else str(value) for value in row] for row in found]
        return sorted(rows, key=lambda row: [value or "" for value in row])


def mirror_in(bucket: str, mirror: InBucket, store: ObjectStore) -> InBucket:
    """Put a mirror into a bucket, in folders of its own, unless its options name others."""
    mirror.store, mirror.bucket, mirror.lake = store, bucket, f"l{next(_NUMBERS)}"
    base = f"s3a://{bucket}/{mirror.lake}"
    into = mirror.arguments["into"]
    mirror.arguments |= {
        "into": into if "://" in into else f"{base}/{{table}}",
        "checkpointLocation": f"{base}-checkpoint",
    }
    return mirror


@pytest.fixture
def in_bucket(workbench: Workbench, store: ObjectStore, tmp_path: Path) -> Callable[..., InBucket]:
    """Make a mirror of a server's database into a bucket; each has folders and a checkpoint of its own."""

    def make(primary: MariaDb, database: str, bucket: str = BUCKET, **options: object) -> InBucket:
        return mirror_in(bucket, InBucket(workbench, primary, database, tmp_path, options), store)

    return make
