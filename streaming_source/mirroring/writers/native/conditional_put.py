"""Check that an object store has conditional PUT, on which the commits of delta-rs depend.

Some stores ignore `If-None-Match`, and then two writers overwrite each other's commits without an error.
`check_conditional_put` writes one object twice and expects that the store refuses the second PUT. The object is written
by Hadoop, because delta-rs searches for newer versions before it commits, and its API has no conditional PUT.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from replica.errors import StorageError
from streaming_source.driver.hadoop_files import hadoop_path
from streaming_source.sinks.queries import first_line
from streaming_source.sinks.storage import bucket_of
from streaming_source.sinks.storage_faults import bucket_fault, texts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_IF_ABSENT: Final = "fs.option.create.conditional.overwrite"
"""Option of Hadoop for a file: PUT with `If-None-Match: *`. S3A has it since Hadoop 3.4.2."""
_REFUSED: Final = ("FileAlreadyExistsException", "RemoteFileChangedException", "PreconditionFailed", "Status Code: 412")
_log = logging.getLogger(__name__)


def check_conditional_put(spark: SparkSession, places: Sequence[str | None]) -> None:
    """Check that the buckets of some places can be written, and have conditional PUT.

    The check writes one object for each bucket, beside its first place, and deletes it. The condition is not checked if
    Hadoop cannot send it.

    Args:
        spark: the session.
        places: folders, or templates of folders. Those on other storage are skipped.

    Raises:
        StorageError: a store ignores the condition, or refuses the request.
    """
    by_bucket = {bucket_of(place): place for place in reversed([place for place in places if place is not None])}
    for bucket, place in by_bucket.items():
        if bucket is None:
            continue
        parent = place.partition("{")[0].rpartition("/")[0].partition("://")[2]
        if not _is_second_refused(spark, f"s3a://{parent}/_conditional_put_{uuid.uuid4().hex}"):
            raise StorageError(
                f"the bucket {bucket} ignores conditional PUT (If-None-Match): it accepted a second PUT of an object.",
                hint="Use a store that has it: without it, two writers overwrite each other's commits.",
            )


def _is_second_refused(spark: SparkSession, path: str) -> bool:
    """Return False if the store accepts two conditional PUTs of one object; True if this cannot be tested."""
    try:
        place, files = hadoop_path(spark, path)
        try:
            for _ in range(2):
                _put_if_absent(files, place)
        finally:
            with contextlib.suppress(Py4JError):  # the caller gets the fault of the store
                files.delete(place, False)
    except Py4JJavaError as error:
        if any(word in text for word in _REFUSED for text in texts_of(error)):
            return True
        typed = bucket_fault(error, path.rpartition("/")[0], spark)
        if typed is not None:
            raise typed from None
        _log.info("%s is not checked for conditional PUT: %s", path, first_line(error))
        return True
    return False


def _put_if_absent(files: Any, place: Any) -> None:
    made = files.createFile(place).overwrite(True).must(_IF_ABSENT, "true").build()
    made.write(b"conditional PUT")
    made.close()
