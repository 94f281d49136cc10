"""mirror() with targets, control table and checkpoint in a bucket of a real S3 server; SELECT is the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.mariadb import MariaDb
    from tests.mirroring.objects.conftest import InBucket

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("writer", ["native", "spark"])
def test_a_mirror_in_a_bucket_follows_its_server(
    primary: MariaDb, in_bucket: Callable[..., InBucket], writer: str
) -> None:
    mirror = in_bucket(primary, "shop", writer=writer)
    mirror.run()
    mirror.assert_equal("a", "b")
    primary.sql(
        "USE shop",
        "UPDATE a SET v = v + 1 WHERE id < 20",
        "DELETE FROM b WHERE id = 3",
        "INSERT INTO a VALUES (1000 + (SELECT MAX(id) FROM b) + ROUND(RAND() * 1000000), 7)",
        "UPDATE b SET id = id + 5000 WHERE id = 4",
    )
    mirror.break_off()  # the batch is in the targets, and comes again
    mirror.run()
    mirror.assert_equal("a", "b")
    if writer == "native":
        assert mirror.written_by("a")[0].startswith("delta-rs"), mirror.written_by("a")
        assert mirror.written_by("mirror_control")[0].startswith("delta-rs")
    primary.sql(
        "USE shop", "ALTER TABLE b ADD COLUMN IF NOT EXISTS w INT DEFAULT 5", "UPDATE b SET w = id", "TRUNCATE a"
    )
    mirror.run()
    mirror.assert_equal("a", "b")
    primary.sql("USE shop", "INSERT INTO a SELECT seq, seq FROM seq_1_to_30")
    mirror.resnapshot("b")
    mirror.run()
    mirror.assert_equal("a", "b")


@pytest.mark.parametrize("keys", ["right", "wrong"])
def test_columns_are_added_without_spark(primary: MariaDb, in_bucket: Callable[..., InBucket], keys: str) -> None:
    """With wrong keys for delta-rs alone, Spark adds the columns."""
    primary.sql(
        "USE shop", "CREATE OR REPLACE TABLE wide (id INT PRIMARY KEY, v INT)", "INSERT INTO wide VALUES (1, 1)"
    )
    mirror = in_bucket(primary, "shop", tables="shop.wide")
    mirror.run()
    primary.sql(
        "USE shop",
        "ALTER TABLE wide ADD COLUMN w INT, ADD COLUMN `x y` VARCHAR(20)",
        "INSERT INTO wide VALUES (2, 2, 2, 'ü')",
        "ALTER TABLE wide ADD COLUMN z DATE",
        "UPDATE wide SET z = '2026-01-01' WHERE id = 1",
    )
    mirror.break_off()  # the columns are there, and come again
    mirror.run(**({} if keys == "right" else {"storageOptions": {"secret_access_key": "wrong-secret-0815"}}))
    primary.sql("USE shop", "ALTER TABLE wide ADD COLUMN last INT", "INSERT INTO wide (id, last) VALUES (3, 3)")
    mirror.run(**({} if keys == "right" else {"storageOptions": {"secret_access_key": "wrong-secret-0815"}}))
    mirror.assert_equal("wide")
    place = f"s3://{mirror.bucket}/{mirror.lake}/wide"
    done = DeltaTable(place, storage_options=mirror.store.options()).history()
    made = [str(one.get("engineInfo", "")).startswith("mariadb-binlog") for one in done if "ALTER" in one["operation"]]
    added = [one for one in done if "COLUMNS" in one["operation"]]
    assert (made.count(True), len(added)) == ((3, 0) if keys == "right" else (1, 2)), done
