"""A mirror into a bucket that refuses: one error that names the bucket and the remedy, and no loss after the remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from streaming_source.mirroring.writers.native.conditional_put import check_conditional_put
from tests.fixtures.installation import PROJECT
from tests.fixtures.s3_faults import CLOCK_IS_OFF, NOT_IMPLEMENTED, FaultyStore, without_condition
from tests.mirroring.objects.conftest import InBucket, mirror_in, s3_settings
from tests.recipes.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb
    from tests.fixtures.object_store import ObjectStore
    from tests.fixtures.s3_faults import Fault, Request

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

_SETTINGS = """
for name, value in {settings!r}.items():
    spark._jsc.hadoopConfiguration().set("fs.s3a.bucket.{bucket}." + name, value)
spark._jvm.org.apache.hadoop.fs.FileSystem.closeAll()
"""
"""Change the settings of one bucket. Hadoop keeps file systems with their settings until they are closed."""
_CHECK = f"""
from {check_conditional_put.__module__} import {check_conditional_put.__name__}
check_conditional_put(spark, {{places!r}})
"""


def bucket_settings(bucket: str, settings: dict[str, str]) -> str:
    """Code that changes the settings of a bucket in the driver."""
    return _SETTINGS.format(settings=settings, bucket=bucket)


class Refusal(NamedTuple):
    """Settings of the session that a bucket refuses, and what the error says."""

    bucket: str
    settings: dict[str, str]
    text: str
    remedy: str


REFUSALS = (
    Refusal("wrong-secret", {"secret.key": "wrong-secret-0815"}, "refuses the credentials", "Give valid keys"),
    Refusal("wrong-key", {"access.key": "NOBODY"}, "refuses the credentials", "Give valid keys"),
    Refusal("wrong-region", {"endpoint.region": "us-east-9"}, "is in another region", "fs.s3a.endpoint.region"),
)
CLOCKS = "the clocks differ"
CONDITION = "Use a store that has it"


@pytest.fixture
def settings(in_bucket: Callable[..., InBucket], primary: MariaDb) -> Callable[..., None]:
    workbench = in_bucket(primary, "shop").workbench

    def change(bucket: str, settings: dict[str, str]) -> None:
        workbench.run(bucket_settings(bucket, settings))

    return change


def change_rows(primary: MariaDb) -> None:
    primary.sql("USE shop", "UPDATE a SET v = v + 1 WHERE id < 20", "DELETE FROM b ORDER BY id LIMIT 1")


def assert_refused(mirror: InBucket, text: str, remedy: str) -> None:
    """Assert that a start or the query ends with one error of the bucket, without keys in it."""
    with pytest.raises(AssertionError) as refused:
        mirror.run()
    said = str(refused.value)
    found = re.findall(rf"StorageError: (the bucket {mirror.bucket} {text}[^\n]*)", said)
    assert found, said[:6000] + " … " + said[-2000:]
    assert remedy in found[-1]
    assert mirror.store.secret_key not in said
    assert "wrong-secret-0815" not in said


def assert_nothing_is_lost(mirror: InBucket) -> None:
    mirror.run()
    mirror.assert_equal("a", "b")
    assert {state for state, _ in mirror.states().values()} == {"current"}
    mirror.assert_native("a", "b")


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.bucket)
def test_settings_that_a_bucket_refuses(
    primary: MariaDb,
    store: ObjectStore,
    in_bucket: Callable[..., InBucket],
    settings: Callable[..., None],
    refusal: Refusal,
) -> None:
    bucket = refusal.bucket
    store.make_bucket(bucket)
    right = {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in store.spark_settings().items()}
    mirror = in_bucket(primary, "shop", bucket)
    settings(bucket, refusal.settings)
    assert_refused(mirror, refusal.text, refusal.remedy)  # a new mirror
    settings(bucket, {name: right[name] for name in refusal.settings})
    assert_nothing_is_lost(mirror)
    settings(bucket, refusal.settings)
    change_rows(primary)
    assert_refused(mirror, refusal.text, refusal.remedy)  # a mirror with targets
    settings(bucket, {name: right[name] for name in refusal.settings})
    assert_nothing_is_lost(mirror)


def test_a_bucket_that_is_gone(primary: MariaDb, store: ObjectStore, in_bucket: Callable[..., InBucket]) -> None:
    mirror = in_bucket(primary, "shop", "gone-bucket")
    assert_refused(mirror, "does not exist", "Create the bucket")
    store.make_bucket("gone-bucket")
    assert_nothing_is_lost(mirror)
    change_rows(primary)
    kept = (store.folder / "gone-bucket").rename(store.folder.parent / "kept-bucket")
    assert_refused(mirror, "does not exist", "Create the bucket")
    kept.rename(store.folder / "gone-bucket")
    assert_nothing_is_lost(mirror)


def test_a_bucket_that_is_read_only(
    primary: MariaDb, store: ObjectStore, in_bucket: Callable[..., InBucket], settings: Callable[..., None]
) -> None:
    bucket = "read-only"
    store.make_bucket(bucket)
    secret = store.add_owner("reader", bucket)
    settings(bucket, {"access.key": "reader", "secret.key": secret})
    mirror = in_bucket(primary, "shop", bucket)
    store.make_read_only(bucket, "reader")
    assert_refused(mirror, "does not allow the request", "Allow s3:ListBucket")
    store.make_writable(bucket)
    assert_nothing_is_lost(mirror)
    change_rows(primary)
    store.make_read_only(bucket, "reader")
    assert_refused(mirror, "does not allow the request", "Allow s3:ListBucket")
    store.make_writable(bucket)
    assert_nothing_is_lost(mirror)


def test_a_clock_that_is_off(
    primary: MariaDb, store: ObjectStore, in_bucket: Callable[..., InBucket], settings: Callable[..., None]
) -> None:
    bucket = "clock-is-off"
    store.make_bucket(bucket)
    with FaultyStore("127.0.0.1", store.port, lambda _: CLOCK_IS_OFF) as proxy:
        settings(bucket, {"endpoint": proxy.endpoint})
        mirror = in_bucket(primary, "shop", bucket)
        assert_refused(mirror, f"refuses the signature, because {CLOCKS}", "by NTP")
        proxy.set_active(False)
        assert_nothing_is_lost(mirror)
        change_rows(primary)
        proxy.set_active(True)
        assert_refused(mirror, f"refuses the signature, because {CLOCKS}", "by NTP")
        proxy.set_active(False)
        assert_nothing_is_lost(mirror)


def refusing_condition(request: Request) -> Fault | None:
    return NOT_IMPLEMENTED if request.conditional else None


@pytest.mark.parametrize("ignored", [False, True])
def test_a_store_without_conditional_put(
    primary: MariaDb,
    store: ObjectStore,
    in_bucket: Callable[..., InBucket],
    settings: Callable[..., None],
    ignored: bool,  # noqa: FBT001
) -> None:
    bucket = "condition-ignored" if ignored else "condition-refused"
    store.make_bucket(bucket)
    fault = without_condition(store) if ignored else refusing_condition
    with FaultyStore("127.0.0.1", store.port, fault) as proxy:
        settings(bucket, {"endpoint": proxy.endpoint})
        mirror = in_bucket(primary, "shop", bucket)
        assert_refused(mirror, "ignores conditional PUT" if ignored else "lacks conditional PUT", CONDITION)
        left = [file for file in (store.folder / bucket).rglob("*") if file.is_file()]
        assert left == [], "no target was begun, and the object of the check was deleted"
        proxy.set_active(False)
        assert_nothing_is_lost(mirror)


def test_each_bucket_is_checked_once_beside_its_place_and_nothing_is_left(
    primary: MariaDb, store: ObjectStore, in_bucket: Callable[..., InBucket]
) -> None:
    for bucket in ("checked-one", "checked-two", "checked-root"):
        store.make_bucket(bucket)
    places = ("s3://checked-one/a/control", "s3a://checked-one/b/{table}", "s3a://checked-two/c/{database}/x_{table}")
    others = (None, "/local/{table}", "lake.{table}", "s3://checked-root/control")
    in_bucket(primary, "shop").workbench.run(_CHECK.format(places=(*places, *others)))
    put = re.findall(r"\| (\d+) \|[^|]*\|[^|]*\| PUT \| /(checked-\S*)/_conditional_put_\w+", store.log())
    once = [("200", place) for place in ("checked-one/a", "checked-root", "checked-two/c")]
    assert sorted(put) == sorted([*once, *(("412", place) for _, place in once)])
    left = [file for file in store.folder.glob("checked-*/**/*") if file.is_file()]
    assert left == []


def test_an_executor_with_wrong_keys_of_its_own(
    primary: MariaDb, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror's tasks use the driver's keys. Spark's own jobs take those of the executor, if settings say so."""
    bucket = "executor-alone"
    store.make_bucket(bucket)
    settings = s3_settings(tmp_path, store)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", settings.pop("spark.hadoop.fs.s3a.access.key"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", settings.pop("spark.hadoop.fs.s3a.secret.key"))
    of_executor = {
        "spark.master": "local-cluster[1,2,1024]",
        "spark.executor.extraClassPath": settings["spark.driver.extraClassPath"],
        "spark.executorEnv.PYTHONPATH": str(PROJECT),
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "wrong-secret-0815",
        f"spark.hadoop.fs.s3a.bucket.{bucket}.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
        ),
    }
    with Workbench(settings | of_executor, tmp_path, {}) as bench:
        mirror = mirror_in(bucket, InBucket(bench, primary, "shop", tmp_path, {}), store)
        assert_nothing_is_lost(mirror)
        change_rows(primary)
        assert_refused(mirror, "does not allow the request", "If only executors are refused, correct their keys")
    del of_executor["spark.executorEnv.AWS_SECRET_ACCESS_KEY"]
    with Workbench(settings | of_executor, tmp_path, {}) as bench:
        mirror.workbench = bench
        assert_nothing_is_lost(mirror)
