"""Tokens of a mirror's commits, and the version of a target that belongs to a micro-batch.

`Commit` is the only idempotence token: the mirror, the micro-batch, and the part of it. All writers store it in the
user metadata, and `parts_in` reads it back. Commits of rows also store it as a transaction of Delta: a late task finds
it there, and it stays when the log is cleaned.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_source.auditing.mirror.versions import batch_of, commits_of, version_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.control.control_row import ControlRow

METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
CHANGES: Final = "changes"
"""Part of a micro-batch that is merged."""
READS: Final = "read"
"""Part of a micro-batch that is appended, or all rows of a table without a key."""
ROWS: Final = frozenset({CHANGES, READS})
AGAIN: Final = "again"
"""Part that ends all rows of a target that keeps them during a re-snapshot."""
UNNUMBERED: Final = ""
"""Part of commits that a repeated micro-batch repeats: new targets, cascades, the control table."""


class Commit(NamedTuple):
    """Idempotence token of a commit: its mirror, micro-batch and part, and the GTID position of the batch's end."""

    mirror: str
    batch: int
    position: str
    part: str = CHANGES

    @property
    def writer(self) -> str:
        """Name under which Delta keeps the number of the last micro-batch."""
        return f"{self.mirror}/{self.part}"

    @property
    def metadata(self) -> str:
        """User metadata of the commit."""
        about = {"mirror": self.mirror, "batch": self.batch, "position": self.position}
        return json.dumps({**about, "part": self.part} if self.part else about)

    def of(self, part: str) -> Commit:
        """Return the token of another part of the micro-batch."""
        return self._replace(part=part)

    def step(self, name: object) -> Commit:
        """Return the token of one of several commits of a part."""
        return self._replace(part=f"{self.part}/{name}")


def version_at(spark: SparkSession, row: ControlRow) -> int:
    """Return the version of the row's target for VERSION AS OF.

    Raises:
        DataLossError: the target's history does not reach back to it.
    """
    return version_of(spark, row.target, row.mirror, row.batch)


def parts_in(spark: SparkSession, target: str, batch: Commit) -> frozenset[str]:
    """Return the parts of a micro-batch in a target's log, unless they were cleaned; `batch`: one of its commits."""
    ours = (told for _, told in commits_of(spark, target) if batch_of(told, batch.mirror) == batch.batch)
    return frozenset(json.loads(told).get("part", UNNUMBERED) for told in ours if told)
