"""Faults of object stores: which bucket, what is wrong, and what to do, without credentials.

`storage_fault` reads the text of an error of delta-rs, Hadoop or a store. `bucket_fault` makes a StorageError of an
error of Spark. If Hadoop's text has no error code of the store, it asks the store, with the settings that Hadoop has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError

from replica.errors import DisconnectedError, StorageError
from streaming_source.sinks.queries import SPARK_ERRORS, message_of
from streaming_source.sinks.storage import S3, bucket_in, is_delta_table, session_options

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

    from replica.errors import ReplicaError

_CAUSES: Final = 12
"""Most nested causes that are read."""
_REPEATED: Final = "Then start again: the query repeats its last batch, and nothing is lost."
_NOT_ALLOWED: Final = "does not allow the request"
_CODES: Final = (
    (
        ("InvalidAccessKeyId", "UserNotFound", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefresh"),
        "refuses the credentials",
        "Give valid keys: storageOptions, fs.s3a.access.key and fs.s3a.secret.key, or AWS_… in each environment.",
    ),
    (
        ("RequestTimeTooSkewed", "RequestExpired", "signature expired", "Request has expired"),
        "refuses the signature, because the clocks differ",
        "Set the clocks of the driver, the executors and the store by NTP.",
    ),
    (
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraint", "301 Moved"),
        "is in another region",
        "Set fs.s3a.endpoint.region (aws_region) to the region of the bucket.",
    ),
    (("NoSuchBucket",), "does not exist", "Create the bucket, or correct its name or fs.s3a.endpoint."),
    (
        ("AccessDenied", "403 Forbidden", "Status Code: 403", "MethodNotAllowed"),
        _NOT_ALLOWED,
        (
            "Allow s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload. If only "
            "executors are refused, correct their keys and clocks."
        ),
    ),
    (
        ("NotImplemented", "501 Not Implemented"),
        "lacks conditional PUT (If-None-Match)",
        "Use a store that has it: without it, two writers overwrite each other's commits.",
    ),
    (
        ("SlowDown", "503 Service", "Status Code: 503", "TooManyRequests", "429 Too Many"),
        "asks for fewer requests",
        "Make micro-batches less frequent (trigger), or raise the limit of the store.",
    ),
    (
        (
            *("timed out", "Timeout waiting", "operation timed out", "Connection refused", "tcp connect error"),
            *("Connection reset", "connection closed", "UnknownHost", "dns error", "SdkClientException"),
            *("error sending request", "error decoding response", "NoHttpResponse"),
        ),
        "does not answer",
        "Look at the network and the state of the store, and check fs.s3a.endpoint.",
    ),
)


class StorageFault(NamedTuple):
    """Fault of a bucket.

    Attributes:
        text: what it is.
        hint: what to do.
        is_vague: whether the fault may be a more specific one, because the text had no error code of the store.
    """

    text: str
    hint: str
    is_vague: bool = False


def storage_fault(text: str, where: str) -> StorageFault | None:
    """Return the fault that an error text of delta-rs, Hadoop or a store describes; None for other texts.

    Args:
        text: the text.
        where: the folder or table, which may be in S3. If it does not name a bucket, the text may.
    """
    bucket = bucket_in(where) or bucket_in(text)
    if bucket is None:
        return None
    found = next((one for one in _CODES if any(code in text for code in one[0])), None)
    if found is None:
        return None
    return StorageFault(f"the bucket {bucket} {found[1]}", found[2], is_vague=found[1] == _NOT_ALLOWED)


def asked_fault(bucket: str, spark: SparkSession | None = None) -> StorageFault | None:
    """Ask a store for the fault of a bucket; None if it lists objects.

    Answers to HEAD have no error code: Hadoop reports each refusal as 403 or 400.

    Args:
        bucket: the bucket.
        spark: the session whose settings the refused request had. None: ask with the kept options of the bucket.
    """
    folder = f"{S3}://{bucket}/_"
    try:
        is_delta_table(folder, None if spark is None else session_options(spark, bucket))
    except Exception as error:  # noqa: BLE001  (delta-rs has no class for errors of a store)
        return storage_fault(str(error), folder)
    return None


def is_refused(text: str) -> bool:
    """Return True if an error text of Hadoop has a refusal of the store."""
    return "Status Code: 4" in text


def is_away(error: Exception) -> bool:
    """Return True if the server of the tables could not be reached."""
    return isinstance(error, DisconnectedError) or (
        isinstance(error, SPARK_ERRORS) and names_kind((message_of(error), *texts_of(error)), DisconnectedError)
    )


def names_kind(texts: Collection[str], kind: type[ReplicaError]) -> bool:
    """Return True if a task failed with this ReplicaError. Spark passes the error on as a part of its own text."""
    return any(f"{kind.__name__}: " in text for text in texts)


def texts_of(error: Exception) -> list[str]:
    """Return the text of an error and of each of its causes, without stack traces."""
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    texts = [] if isinstance(error, Py4JJavaError) else [str(error)]
    for _ in range(_CAUSES):
        if java is None:
            break
        texts.append(str(java.toString()))
        java = java.getCause()
    return texts


def bucket_fault(error: Exception, writing: str, spark: SparkSession | None = None) -> StorageError | None:
    """Return a StorageError for an error of an object store, else None.

    Args:
        error: the error of Spark, Hadoop or Delta.
        writing: what was written, for the message.
        spark: the session whose settings the failed request had. None: the bucket is asked with its kept options.
    """
    if not isinstance(error, SPARK_ERRORS) or is_away(error):
        return None
    text = "\n".join(texts_of(error))
    fault, bucket = storage_fault(text, writing), bucket_in(writing) or bucket_in(text)
    if bucket is not None and is_refused(text) and (fault is None or fault.is_vague):
        fault = asked_fault(bucket, spark) or fault
    if fault is None:
        return None
    where = f", found while using {writing}" if writing else ""
    return StorageError(f"{fault.text}{where}.", hint=f"{fault.hint} {_REPEATED}")
