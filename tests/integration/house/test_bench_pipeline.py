"""The benchmark of the whole way, on a binlog of a few megabytes: which clients take part, their rows and ratios."""

from __future__ import annotations

import json

import pytest

from tools.bench.replica.bench_pipeline import main

pytestmark = pytest.mark.server

PEERS = ["receive only", "python-mysql-replication", "mariadb-binlog -v"]
"""The ones that need nothing from a registry."""


@pytest.mark.slow  # seven processes, each of which loads its libraries
def test_it_reads_a_small_binlog_with_every_client_and_says_the_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--workload", "bulk", "--megabytes", "0.1", "--rounds", "1", "--seconds", "0.5"]
    main([*size, *(word for peer in PEERS for word in ("--peer", peer)), "--json"])
    table, _, told = capsys.readouterr().out.rstrip().rpartition("\n")
    found = json.loads(told)
    (result,) = found["results"]
    assert list(result["contenders"]) == ["ours", *PEERS]
    assert result["rows"] == result["contenders"]["ours"]["rows"] == 50_000
    assert 0 < result["contenders"]["python-mysql-replication"]["rows"] <= 50_000
    assert list(found["ratio"]["bulk"]) == PEERS
    assert found["left_out"] == []
    for name in result["contenders"]:
        assert f"{name}: {found['does'][name]}" in table
