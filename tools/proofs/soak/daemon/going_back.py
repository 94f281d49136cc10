"""Writer whose sequence numbers go back, as in a replay with `SET gtid_seq_no` on a server that accepts any number.

In: the next numbers to use, from a fault (out_of_order.py). Without them, the server assigns numbers above all earlier
ones. Out: transactions in a separate domain, in which many transactions may share one GTID. Each transaction therefore
also writes a unique number into the table, one more than the transaction before. The judges identify transactions by
this number.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

from tools.proofs.soak.load.writer import Writer

if TYPE_CHECKING:
    from tools.proofs.soak.daemon.pair import Pair
    from tools.proofs.soak.load.ledger import Ledger

DOMAIN: Final = 6
CARRIED: Final = re.compile(rb"carried=(\d{12});")
"""As it stands in the rows event: too short for the server to compress it."""


class GoingBack(Writer):
    """One row a transaction, each with the next number."""

    domain = DOMAIN
    pause_s = 0.03

    def __init__(self, number: int, pair: Pair, ledger: Ledger, seed: int) -> None:
        super().__init__(number, pair, ledger, seed)
        self.numbers: deque[int] = deque()
        """Sequence numbers that the next transactions take; each is removed when its transaction was acknowledged."""
        self.carried = 0
        """What the last transaction carries."""

    def begin(self) -> None:
        """Whatever became of the last one: it is in the table, or was never committed."""
        self.cursor.execute("SELECT COALESCE(MAX(number), 0) FROM counted")
        row = self.cursor.fetchone()
        assert row is not None
        self.carried = int(row[0])

    def step(self) -> None:
        carried = self.carried + 1
        taken = self.numbers[0] if self.numbers else None
        if taken is not None:
            self.cursor.execute(f"SET gtid_seq_no = {taken}")
        self.cursor.execute("BEGIN")
        mark = self.mark()
        self.cursor.execute(f"INSERT INTO counted VALUES ({carried}, 'carried={carried:012d};')")
        self.commit(mark=mark, carried=f"={carried}")
        self.carried = carried
        if taken is not None:
            self.numbers.popleft()
