"""A change that the primary logged as a statement stops a real query, which goes on behind it when it is told to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.spark.queries import frequent_progress, ids, wait

if TYPE_CHECKING:
    from tests.spark.queries import Shop

pytestmark = [pytest.mark.server, pytest.mark.spark]


@pytest.mark.slow
def test_a_query_stops_before_a_statement_and_a_restart_with_warn_has_all_else_once(shop: Shop) -> None:
    shop.insert(1, 3)
    change = f"UPDATE {shop.orders} SET price = 0 WHERE id < 3"
    shop.sql("SET SESSION binlog_format = STATEMENT", change)
    stopped_at = shop.primary.gtid_binlog_pos().split(",")
    shop.insert(4, 3)
    run = shop.run()
    for _ in range(2):
        with pytest.raises(Exception, match=r"StatementDmlError.*onStatementDml=warn") as stopped:
            run.drain(shop.changes())
        assert change in str(stopped.value)
        assert any(gtid in str(stopped.value) for gtid in stopped_at)
        assert ids(run.rows) == [1, 2, 3], "what was before is delivered"
    with frequent_progress(shop.spark):
        query = run.start(shop.changes(onStatementDml="warn"))
    wait(lambda: ids(run.rows) == [*range(1, 7)], "the rows behind the statement arrive", query)

    def told() -> bool:
        sources = query.lastProgress["sources"] if query.lastProgress else []
        return any(json.loads(source["latestOffset"] or "{}").get("statementDml") == 1 for source in sources)

    wait(told, "the progress counts the statement", query)
    query.stop()
    shop.insert(7)
    assert ids(run.drain(shop.changes())) == [*range(1, 8)], "the option is needed no more"
