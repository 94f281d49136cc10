"""The commits of a mirror: the token that each one has, and the version of a target that belongs to a batch.

`Commit` is the only idempotence token: whose a commit is, of which batch, and which part of it. All writers put it into
the user's metadata, and `parts_in` reads it back. Commits of rows also have it as a transaction of Delta's, which a
task that comes late meets, and which stays when the log is cleaned.
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
"""The part of a batch that is merged."""
READS: Final = "read"
"""The part of a batch that is appended, and all rows of a table without a key."""
ROWS: Final = frozenset({CHANGES, READS})
AGAIN: Final = "again"
"""The end of all rows of a target that keeps them when its table is read again."""
UNNUMBERED: Final = ""
"""Commits that a batch that comes again makes again: new targets, cascades, the control table."""


class Commit(NamedTuple):
    """Idempotence token of a commit: whose, of which batch and part of it, and the GTID position of the batch's end."""

    mirror: str
    batch: int
    position: str
    part: str = CHANGES

    @property
    def writer(self) -> str:
        """The name under which Delta keeps the number of the last batch."""
        return f"{self.mirror}/{self.part}"

    @property
    def metadata(self) -> str:
        """The user's metadata of the commit, as all commits of a mirror have it."""
        about = {"mirror": self.mirror, "batch": self.batch, "position": self.position}
        return json.dumps({**about, "part": self.part} if self.part else about)

    def of(self, part: str) -> Commit:
        """Return the token of another part of the batch."""
        return self._replace(part=part)

    def step(self, name: object) -> Commit:
        """Return the token of one of several commits that a part consists of."""
        return self._replace(part=f"{self.part}/{name}")


def version_at(spark: SparkSession, row: ControlRow) -> int:
    """Return the version of the row's target to read with VERSION AS OF.

    Raises:
        DataLossError: the target's history does not reach back that far.
    """
    return version_of(spark, row.target, row.mirror, row.batch)


def parts_in(spark: SparkSession, target: str, batch: Commit) -> frozenset[str]:
    """Return the parts of a batch that are in a target, as far as its log goes back; `batch`: one of its commits."""
    ours = (told for _, told in commits_of(spark, target) if batch_of(told, batch.mirror) == batch.batch)
    return frozenset(json.loads(told).get("part", UNNUMBERED) for told in ours if told)
