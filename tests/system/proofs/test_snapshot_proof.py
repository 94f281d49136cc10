"""`scripts/prove snapshot`, short: the harness finds what it has to find, and nothing else.

The stream alone (`earliest`) proves the harness: it is right of a source that is right, and sees one row in five
hundred that is dropped, doubled or stale.
"""

from __future__ import annotations

import pytest

from tools.proofs.snapshot.app import MUTATIONS
from tools.proofs.snapshot.judge import WrongRowError
from tools.proofs.snapshot.proof import APPEND, MERGE, Wanted, prove

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(1800)]
ROWS, SEED = 4000, 7


def test_the_stream_alone_is_right() -> None:
    summary = prove(Wanted(None, ROWS, kills=3, seed=SEED, kinds=(APPEND, MERGE), start="earliest"), say=print)
    assert sum(summary["kills"].values()) == 3
    assert summary["rows at the end"][APPEND] == summary["rows at the end"][MERGE] > 0


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_damaged_sink_is_found(mutation: str) -> None:
    wanted = Wanted(None, ROWS, kills=0, seed=SEED, kinds=(APPEND,), start="earliest", mutation=mutation)
    with pytest.raises(WrongRowError, match=r"^parquet, batch"):
        prove(wanted, say=print)
