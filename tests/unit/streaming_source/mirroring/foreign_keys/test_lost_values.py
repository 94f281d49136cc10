from __future__ import annotations

import pyarrow as pa

from streaming_source.mirroring.foreign_keys.lost_values import latest_losses


def told(*changes: tuple[int | None, int, int]) -> pa.Table:
    values, numbers, domains = (list(each) for each in zip(*changes, strict=True)) if changes else ([],) * 3
    return pa.table(
        {
            "v0": pa.array(values, pa.int64()),
            "number": pa.array(numbers, pa.int64()),
            "ordinal": pa.array([0] * len(values), pa.int64()),
            "domain": pa.array(domains, pa.int64()),
            "gtid": pa.array(
                [f"{domain}-1-{number}" for domain, number in zip(domains, numbers, strict=True)], pa.string()
            ),
            "committed": pa.array([0] * len(values), pa.timestamp("us", "UTC")),
        }
    )


def test_the_last_loss_of_a_value_counts_and_null_refers_to_nothing() -> None:
    lost = latest_losses(told((7, 1, 0), (8, 2, 0), (7, 3, 0), (None, 4, 0)), 1)
    assert dict(zip(lost.values.column("v0").to_pylist(), lost.at, strict=True)) == {7: (3, 0), 8: (2, 0)}
    assert lost.values.column("gtid").to_pylist() == ["0-1-3", "0-1-2"]
    assert lost.doubt == [False, False]


def test_a_value_that_changes_of_several_domains_took_away_is_in_doubt() -> None:
    assert latest_losses(told((7, 1, 0), (7, 2, 1), (8, 3, 1)), 1).doubt == [True, False]


def test_there_may_be_no_loss_and_of_some_any_number_can_be_taken() -> None:
    assert latest_losses(told(), 1).at == []
    lost = latest_losses(told(*((number, number, 0) for number in range(9))), 1)
    assert lost.of([8, 8, 0]).at == [(8, 0), (8, 0), (0, 0)]
    assert lost.of([]).values.num_rows == 0
