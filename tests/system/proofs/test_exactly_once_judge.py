"""`scripts/prove exactly-once` without Spark: the workload through cut connections, and a judge that has to object."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import VariantVal

from tests.fixtures.load.workload import DATABASE, Workload
from tests.fixtures.mariadb import wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.integration.snapshot.kit.query import SnapshotQuery
from tools.proofs.changes import DeliveredChange, check
from tools.proofs.exactly_once import cutting

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb
    from tests.integration.snapshot.kit.query import Row

pytestmark = pytest.mark.server
SEED, TRANSACTIONS = 7, 400


def _delivered(row: Row) -> DeliveredChange:
    transaction = row["transaction"]
    images = (
        None if row[side] is None else VariantVal(row[side]["value"], row[side]["metadata"]).toJson()
        for side in ("before", "after")
    )
    place = (transaction[name] for name in ("domain_id", "server_id", "sequence_number", "ordinal"))
    return DeliveredChange(row["op"], row["database"], row["table"], *place, *images)


def test_every_change_comes_once_through_cuts_and_the_judge_sees_what_is_wrong(
    any_server: MariaDb, tmp_path: Path
) -> None:
    work, rows = Workload(any_server, seed=SEED), list[DeliveredChange]()
    work.create()
    writing = threading.Thread(target=work.run, args=(TRANSACTIONS,))
    with FaultProxy("127.0.0.1", any_server.port) as proxy:
        given = {"startingPosition": "earliest", "port": str(proxy.port), "maxBytesPerTrigger": "64k"}
        with SnapshotQuery(any_server, tmp_path, f"{DATABASE}.*", **given) as query:
            writing.start()
            with cutting(proxy, random.Random(SEED)) as cuts:
                wait_until(lambda: cuts[0] > 0, "a connection was cut")
                writing.join()
                while not query.has(work.gtid_position):
                    rows += map(_delivered, query.batch())
    assert check(rows, work) == len(rows) > TRANSACTIONS
    one = next(row for row in rows if row.op == "update")
    for wrong, said in (
        ([row for row in rows if row is not one], r"1 of \d+ row changes never arrived"),
        ([*rows, one], "1 row identities arrived more than once"),
        ([row._replace(op="insert") if row is one else row for row in rows], "instead of"),
        ([row._replace(after=one.before) if row is one else row for row in rows], "the after image is"),
        ([*rows, one._replace(sequence_number=1 << 40)], "no transaction wrote this row"),
    ):
        with pytest.raises(AssertionError, match=said):
            check(wrong, work)
