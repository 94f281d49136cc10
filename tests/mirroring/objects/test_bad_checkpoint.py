"""A checkpoint in a bucket that refuses, for a first start and a restart: bucket, checkpoint and remedy in one error.

Targets and control table are in another bucket, which nothing is wrong with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.mirroring.objects.test_bad_input import bucket_settings, change_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb
    from tests.fixtures.object_store import ObjectStore
    from tests.mirroring.objects.conftest import InBucket
    from tests.recipes.workbench import Workbench

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

WRONG_SECRET = "wrong-secret-0815"
OWNER = "reader"
CAUSES = {
    "gone": ("does not exist", "Create the bucket"),
    "read-only": ("does not allow the request", "Allow s3:ListBucket"),
    "wrong-region": ("is in another region", "fs.s3a.endpoint.region"),
    "wrong-keys": ("refuses the credentials", "Give valid keys"),
}
_PLAIN = """
from pyspark_mariadb_binlog import started
changes = spark.readStream.format("mariadb-binlog").options(**{options!r}).load()
writer = changes.writeStream.format("noop").option("checkpointLocation", {checkpoint!r}).trigger(availableNow=True)
query = started(writer)
try:
    query.awaitTermination()
finally:
    query.stop()
result = spark.read.text({checkpoint!r} + "/offsets").count()
"""


@dataclass
class CheckpointBucket:
    """A bucket for checkpoints, that can refuse and be mended."""

    cause: str
    store: ObjectStore
    workbench: Workbench

    def __post_init__(self) -> None:
        self.store.make_bucket(self.name)
        if self.cause == "read-only":
            secret = self.store.add_owner(OWNER, self.name)
            self.set({"access.key": OWNER, "secret.key": secret})

    @property
    def name(self) -> str:
        return f"checkpoints-{self.cause}"

    def set(self, settings: dict[str, str]) -> None:
        self.workbench.run(bucket_settings(self.name, settings))

    def damage(self) -> None:
        if self.cause == "gone":
            (self.store.folder / self.name).rename(self.store.folder.parent / "kept")
        elif self.cause == "read-only":
            self.store.make_read_only(self.name, OWNER)
        elif self.cause == "wrong-region":
            self.set({"endpoint.region": "us-east-9"})
        else:
            self.set({"secret.key": WRONG_SECRET})

    def mend(self) -> None:
        right = {name.removeprefix("spark.hadoop.fs.s3a."): text for name, text in self.store.spark_settings().items()}
        if self.cause == "gone":
            (self.store.folder.parent / "kept").rename(self.store.folder / self.name)
        elif self.cause == "read-only":
            self.store.make_writable(self.name)
        else:
            self.set({name: right[name] for name in ("endpoint.region", "secret.key")})


def assert_refused(work: Callable[[], Any], bucket: CheckpointBucket, checkpoint: str) -> None:
    text, remedy = CAUSES[bucket.cause]
    with pytest.raises(AssertionError) as refused:
        work()
    said = str(refused.value)
    error = said.strip().splitlines()[-1]
    assert error.startswith(f"replica.errors.StorageError: the bucket {bucket.name} {text}, found while using "), said
    assert f"the checkpoint {checkpoint}. " in error
    assert remedy in error
    assert "nothing is lost" in error
    assert not [secret for secret in (bucket.store.secret_key, bucket.store.access_key, WRONG_SECRET) if secret in said]


@pytest.mark.parametrize("cause", CAUSES)
def test_the_error_names_bucket_checkpoint_and_remedy(
    primary: MariaDb,
    store: ObjectStore,
    workbench: Workbench,
    in_bucket: Callable[..., InBucket],
    tmp_path: Path,
    cause: str,
) -> None:
    bucket = CheckpointBucket(cause, store, workbench)
    mirror = in_bucket(primary, "shop")
    checkpoint, plain_checkpoint = f"s3a://{bucket.name}/of-mirror", f"s3a://{bucket.name}/of-query"
    mirror.arguments["checkpointLocation"] = checkpoint
    options = {name: str(mirror.arguments[name]) for name in ("host", "port", "user", "password", "tables")}
    options |= {"relayDir": str(tmp_path / "relay-of-query"), "startingPosition": "initial"}

    def run_plain() -> int:
        return int(workbench.run(_PLAIN.format(options=options, checkpoint=plain_checkpoint)))

    bucket.damage()
    assert_refused(mirror.run, bucket, checkpoint)
    assert_refused(run_plain, bucket, plain_checkpoint)
    bucket.mend()
    mirror.run()
    before = run_plain()
    change_rows(primary)
    bucket.damage()
    assert_refused(mirror.run, bucket, checkpoint)
    assert_refused(run_plain, bucket, plain_checkpoint)
    bucket.mend()
    mirror.run()
    mirror.assert_equal("a", "b")
    assert run_plain() > before
    left = [file.name for file in (store.folder / bucket.name).rglob("_written_*")]
    assert left == []
