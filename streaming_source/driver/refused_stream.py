"""A stream reader that raises the error of `streamReader()` at Spark's first call.

Spark (4.2) hides an error that `streamReader()` itself raises under an UnboundLocalError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from streaming_source.driver.spark_border import spark_border

if TYPE_CHECKING:
    from replica.errors import ReplicaError


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's reader of a refused stream. Spark calls `prepareForTriggerAvailableNow` or `getDefaultReadLimit`
    first.
    """

    def __init__(self, error: ReplicaError) -> None:
        self._error = error

    def __repr__(self) -> str:
        return f"RefusedStream({type(self._error).__name__})"

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        self._refuse()

    def getDefaultReadLimit(self) -> NoReturn:  # noqa: N802
        self._refuse()

    def initialOffset(self) -> NoReturn:  # noqa: N802
        self._refuse()

    def latestOffset(self, start: object, limit: object) -> NoReturn:  # noqa: N802, ARG002
        self._refuse()

    def partitions(self, start: object, end: object) -> NoReturn:  # noqa: ARG002
        self._refuse()

    def read(self, partition: object) -> NoReturn:  # noqa: ARG002
        self._refuse()

    @spark_border()
    def _refuse(self) -> NoReturn:
        raise self._error
