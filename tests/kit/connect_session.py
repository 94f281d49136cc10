"""A session of Spark Connect as far as helpers may ask it: it has no JVM, and says so as Spark does."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkAttributeError


class ConnectSession:
    """A session without `_jvm`, `_jsparkSession` and `sparkContext`."""

    def __getattr__(self, name: str) -> Any:
        raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": name})
