"""The judge of `scripts/prove audit`: what an audit has to say of damaged rows, and what it must not say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming_source.auditing.result import AuditResult, Difference, LeftOut, TableAudit
from tools.proofs.audit_proof import AuditProof

DAMAGED = {"flipped": 7, "missing": 8, "doubled": 9, "stale": 10}
NAMED = (("different", "7"), ("missing", "8"), ("doubled", "9"), ("different", "10"))


def table(*named: tuple[str, str]) -> TableAudit:
    kinds = [kind for kind, _ in named]
    return TableAudit(
        table="bench.t0", target="lake", version=3, position="0-1-9", source_rows=20, target_rows=20,
        source_hash="", target_hash="", buckets=4, differing_buckets=len(named),
        counts={kind: kinds.count(kind) for kind in kinds}, keys=("id",), seconds=1.0,
        differences=tuple(Difference(kind, {"id": key}, None, None) for kind, key in named),
    )  # fmt: skip


def found(*tables: TableAudit) -> AuditResult:
    return AuditResult("0-1-9", tables)


def test_what_has_to_be_found_is_found() -> None:
    AuditProof._check(found(table()), {})
    AuditProof._check(found(table(*NAMED)), DAMAGED)


@pytest.mark.parametrize(
    ("result", "damaged"),
    [
        (found(table()), DAMAGED),
        (found(table(*NAMED[1:])), DAMAGED),
        (found(table(*NAMED, ("extra", "11"))), DAMAGED),
        (found(table(("extra", "7"), *NAMED[1:])), DAMAGED),
        (found(table(("different", "6"), *NAMED[1:])), DAMAGED),
        (found(replace(table(*NAMED), counts={"different": 3, "missing": 1, "doubled": 1})), DAMAGED),
        (found(replace(table(*NAMED), differing_buckets=0)), DAMAGED),
        (found(table(*NAMED)), {}),
        (found(replace(table(), differing_buckets=1)), {}),
        (replace(found(table()), left_out=(LeftOut("bench.t0", "it was changed"),)), {}),
    ],
    ids=[
        "nothing", "one less", "one more", "another kind", "another row", "another number", "equal all the same",
        "a false alarm", "a difference without a row", "left out",
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(result: AuditResult, damaged: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        AuditProof._check(result, damaged)


def test_a_result_without_its_table_is_refused() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        AuditProof._check(found(), {})
