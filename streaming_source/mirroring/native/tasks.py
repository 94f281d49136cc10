"""The function of a task that writes one table: the table's part of a batch becomes a commit in its target.

In: the partitions of a batch that have changes of the table. Out: one row, which says that the changes are in, or why
not. What is wrong with one table ends no task: Spark then writes the table, and meets and tells what it was.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from streaming_source.mirroring.native.delta_rows import Commit
    from streaming_source.mirroring.outlines.latest_rows import LatestOfTable

OUTCOME: Final = "number INT, reason STRING"
"""The schema of what a task says: the number of its table, and why it was not written; NULL: it was."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableTask:
    """The function. `number` tells tables of one job apart; `names` and `keys` are columns of the target."""

    number: int
    folder: str
    latest: LatestOfTable
    names: tuple[str, ...]
    keys: tuple[str, ...]
    commit: Commit
    owner: tuple[tuple[str, str], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        reason = self._written(batches)
        yield pa.RecordBatch.from_pydict(
            {"number": [self.number], "reason": [reason]},
            schema=pa.schema([("number", pa.int32()), ("reason", pa.string())]),
        )

    def _written(self, batches: Iterable[pa.RecordBatch]) -> str | None:
        import pyarrow as pa

        from streaming_source.mirroring.native.delta_rows import NativeWriteError, merge_rows

        try:
            found = list(self.latest(batches))
            if found:
                merge_rows(
                    self.folder, pa.Table.from_batches(found), self.names, self.keys, self.commit, dict(self.owner)
                )
        except NativeWriteError as refused:
            return str(refused)
        except Exception as error:  # noqa: BLE001  (whatever it is: of this table alone)
            _log.debug("a task could not write %s", self.folder, exc_info=True)
            return f"{type(error).__name__}: {error}"
        return None
