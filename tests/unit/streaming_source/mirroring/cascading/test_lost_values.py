from __future__ import annotations

import pyarrow as pa

from streaming_source.mirroring.cascading.lost_values import latest_losses


def told(*changes: tuple[int | None, int, int, bool]) -> pa.Table:
    values, numbers, domains, lost = (list(each) for each in zip(*changes, strict=True)) if changes else ([],) * 4
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
            "lost": pa.array(lost, pa.bool_()),
        }
    )


def test_the_last_loss_of_a_value_counts_and_null_refers_to_nothing() -> None:
    lost = latest_losses(told((7, 1, 0, True), (8, 2, 0, True), (7, 3, 0, True), (None, 4, 0, True)), 1)
    assert dict(zip(lost.values.column("v0").to_pylist(), lost.at, strict=True)) == {7: (3, 0), 8: (2, 0)}
    assert lost.values.column("gtid").to_pylist() == ["0-1-3", "0-1-2"]
    assert lost.doubt == lost.back == [False, False]


def test_a_value_that_came_again_is_told_and_one_of_several_domains_is_in_doubt() -> None:
    lost = latest_losses(told((7, 1, 0, True), (7, 2, 0, False), (8, 4, 0, False), (8, 5, 0, True), (9, 1, 0, True)), 1)
    assert dict(zip(lost.values.column("v0").to_pylist(), lost.back, strict=True)) == {7: True, 8: False, 9: False}
    assert latest_losses(told((7, 1, 0, True), (7, 2, 1, False)), 1).doubt == [True]


def test_nothing_is_lost_by_rows_that_come() -> None:
    assert latest_losses(told((7, 1, 0, False)), 1).at == []
    assert latest_losses(told(), 1).at == []


def test_all_of_any_number_of_losses_can_be_in_doubt() -> None:
    lost = latest_losses(told(*((number, number, 0, True) for number in range(9))), 1)
    assert lost.doubted().doubt == [True] * 9
    assert lost.of([8, 8, 0]).at == [(8, 0), (8, 0), (0, 0)]
