"""Storage of Delta tables without Spark: a local disk, or a bucket of S3 through delta-rs.

`delta_table` opens a table, and `files_in` gives its files. Both take a folder as `sinks/delta.py` returns it: a local
path, or `s3://bucket/path`. `use_storage` keeps the options of a bucket for the process, because a folder is only text:
so credentials are in no plan, task argument, repr or log. `storage_faults.py` explains errors of a store.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import threading
import uuid
from collections import OrderedDict
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from replica.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake._internal import DeltaFileSystemHandler, ObjectOutputStream
    from obstore.store import S3Store
    from pyarrow.fs import FileInfo
    from pyspark.sql import SparkSession

S3: Final = "s3"
SCHEMES: Final = frozenset({S3, "s3a", "s3n"})
"""Schemes of URLs in S3. Spark has the file system s3a; delta-rs takes s3 and s3a alike."""


class StorageOption(NamedTuple):
    """Option of delta-rs for S3.

    Attributes:
        name: its name in `storageOptions`.
        meaning: its meaning in Markdown.
        hadoop: the setting of Spark that gives it, if there is one.
        secret: whether its value is a credential.
    """

    name: str
    meaning: str
    hadoop: str = ""
    secret: bool = False


OPTIONS: Final = (
    StorageOption("aws_access_key_id", "access key", "fs.s3a.access.key", secret=True),
    StorageOption("aws_secret_access_key", "secret key", "fs.s3a.secret.key", secret=True),
    StorageOption("aws_session_token", "token of temporary credentials", "fs.s3a.session.token", secret=True),
    StorageOption("aws_endpoint", "URL of the store, if it is not AWS", "fs.s3a.endpoint"),
    StorageOption("aws_region", "region of the bucket", "fs.s3a.endpoint.region"),
    StorageOption("aws_virtual_hosted_style_request", "`true`: the bucket is part of the host name"),
    StorageOption("aws_allow_http", "`true` allows an endpoint without TLS"),
    StorageOption("aws_server_side_encryption", "`AES256`, `aws:kms` or `aws:kms:dsse`"),
    StorageOption("aws_sse_kms_key_id", "the key of KMS"),
    StorageOption("timeout", "longest time of a request: `30s`"),
    StorageOption("connect_timeout", "longest time of a connection attempt: `5s`"),
    StorageOption("max_retries", "retries of a request"),
    StorageOption("retry_timeout", "longest time of a request with its retries: `60s`"),
)
_BY_NAME: Final = {option.name: option for option in OPTIONS}
_DEFAULTS: Final = {"timeout": "30s", "connect_timeout": "5s", "max_retries": "6", "retry_timeout": "60s"}
"""Limits of delta-rs are three minutes. A micro-batch waits for them, and is repeated by Spark after a fault."""
_SAFE: Final = {"aws_conditional_put": "etag", "aws_s3_allow_unsafe_rename": "false"}
"""A commit is a PUT that fails if the object exists (If-None-Match). The environment may not allow anything less."""
_UNSAFE: Final = ("conditional_put", "copy_if_not_exists", "allow_unsafe_rename", "s3_locking_provider")
AT_ONCE_BYTES: Final = 4 << 20
"""Most bytes of an object that is read by one request, instead of one for each column of a row group."""
_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
}
_HINT: Final = "docs/mirror-reference.md lists the storage options."

_BUCKET: Final = re.compile(r"\bs3[an]?://([\w.-]+)")

_options: dict[str, dict[str, str]] = {}
"""Options by bucket, of this process."""
_lock = threading.Lock()


def checked_options(given: Mapping[str, object] | None) -> dict[str, str]:
    """Return `storageOptions` by the names in OPTIONS. Their values appear in no error text.

    Raises:
        ConfigError: an option is unknown, given twice, or makes commits unsafe.
    """
    made: dict[str, str] = {}
    for key, value in (given or {}).items():
        name = key.lower()
        name = f"aws_{name}" if f"aws_{name}" in _BY_NAME else name
        if any(part in name for part in _UNSAFE):
            raise ConfigError(
                f"storageOptions: {key} cannot be set: commits need conditional PUT (If-None-Match), or two writers "
                "overwrite each other's commits.",
                hint="Remove it. The store has to have conditional PUT.",
            )
        if name not in _BY_NAME or name in made:
            why = "is given twice" if name in made else "is not an option"
            raise ConfigError(f"storageOptions: {key} {why}.", hint=_HINT)
        if not isinstance(value, (str, int)) or value == "":
            raise ConfigError(f"storageOptions: the value of {key} is not a text.", hint=_HINT)
        made[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return made


def bucket_of(folder: str) -> str | None:
    """Return the bucket of a folder in S3; None for other folders."""
    place = urlsplit(folder)
    return place.netloc if place.scheme in SCHEMES else None


def bucket_in(text: str) -> str | None:
    """Return the first bucket of S3 that a text names, such as the name of a table or an error; else None."""
    found = _BUCKET.search(text)
    return None if found is None else found[1]


def use_storage(bucket: str, options: Mapping[str, str]) -> None:
    """Keep the options of a bucket for this process. They replace older ones."""
    with _lock:
        _options[bucket] = dict(options)


def storage_of(folders: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the kept options of the buckets of these folders, for `use_storage` in a task."""
    with _lock:
        buckets = {bucket for folder in folders if (bucket := bucket_of(folder)) is not None}
        return {bucket: dict(_options[bucket]) for bucket in buckets if bucket in _options}


def session_options(spark: SparkSession, bucket: str) -> dict[str, str]:
    """Return the options of a bucket that the settings of a session give: those of the bucket, or of all buckets.

    Credentials may also be in a credential store of Hadoop. Without a setting, delta-rs takes the environment of each
    process, and then the role of the machine.
    """
    from streaming_source.sinks.queries import unlogged_calls

    conf: Any = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001  (Python has no API for it)

    def setting(name: str) -> str:
        for key in (name.replace("fs.s3a.", f"fs.s3a.bucket.{bucket}."), name):
            value = conf.getPassword(key)  # also of plain settings
            if value is not None:
                return "".join(value).strip()
        return ""

    with unlogged_calls():
        found = {option.name: setting(option.hadoop) for option in OPTIONS if option.hadoop}
    found = {name: value for name, value in found.items() if value}
    endpoint = found.get("aws_endpoint")
    if endpoint is not None:
        if "://" not in endpoint:
            plain = setting("fs.s3a.connection.ssl.enabled").lower() == "false"
            endpoint = f"{'http' if plain else 'https'}://{endpoint}"
        host = urlsplit(endpoint).hostname or ""
        if host.endswith(".amazonaws.com"):
            del found["aws_endpoint"]  # delta-rs makes it from the region
        else:
            if setting("fs.s3a.path.style.access").lower() != "true":
                endpoint = endpoint.replace("://", f"://{bucket}.", 1)
                found["aws_virtual_hosted_style_request"] = "true"
            found |= {"aws_endpoint": endpoint, "aws_allow_http": str(endpoint.startswith("http://")).lower()}
    return found


def known_storage(spark: SparkSession, location: str, given: Mapping[str, str] | None = None) -> str:
    """Return a location in S3 as a folder of delta-rs, and keep the options of its bucket.

    Args:
        spark: the session whose settings give the options.
        location: the URL, `s3a://bucket/path`.
        given: `storageOptions` of a mirror, which win. None: keep the options that the process has.
    """
    bucket = bucket_of(location)
    assert bucket is not None, location  # noqa: S101
    with _lock:
        is_known = bucket in _options
    if given is not None or not is_known:
        use_storage(bucket, session_options(spark, bucket) | dict(given or {}))
    return f"{S3}://{bucket}/{urlsplit(location).path.strip('/')}"


def options_of(folder: str) -> dict[str, str] | None:
    """Return the options with which delta-rs opens a folder; None for a local folder."""
    bucket = bucket_of(folder)
    if bucket is None:
        return None
    with _lock:
        return _DEFAULTS | _options.get(bucket, {}) | _SAFE


def delta_table(folder: str, version: int | None = None) -> DeltaTable:
    """Open a version of the table in a folder; None: the current one.

    Raises:
        TableNotFoundError: there is no table.
    """
    from deltalake import DeltaTable

    return DeltaTable(folder, version=version, storage_options=options_of(folder))


def is_delta_table(folder: str, options: Mapping[str, str] | None = None) -> bool:
    """Return True if a folder has a table; `options`: those of its bucket, instead of the kept ones."""
    from deltalake import DeltaTable

    used = options_of(folder) if options is None else _DEFAULTS | dict(options) | _SAFE
    return DeltaTable.is_deltatable(folder, storage_options=used)


class TableFiles(Protocol):
    """Files in the folder of a table, by their paths in it."""

    def write(self, path: str) -> pa.NativeFile:
        """Open a new file; it exists when it is closed."""

    def create(self, path: str, content: bytes) -> None:
        """Write a new file as a whole, or nothing.

        Raises:
            FileExistsError: the file exists. In a bucket it may be the one of this call, if the answer to an earlier
                attempt was lost.
            OSError: the file could not be written. In a bucket it may be there all the same.
        """

    def read(self, path: str) -> pa.NativeFile:
        """Open a file.

        Raises:
            OSError: it does not exist, or cannot be read.
        """

    def identity(self, path: str) -> object:
        """Return a value that another file under the same name does not have; None if there is no file."""

    def times(self) -> Iterator[tuple[str, float]]:
        """Yield path and time of change of the files directly in the folder, in seconds since 1970."""

    def size(self, path: str) -> int:
        """Return the bytes of a file."""

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, if they exist."""

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yield path and bytes of all files, in all folders below."""


def files_in(folder: str) -> TableFiles:
    """Return the files in the folder of a table."""
    return _LocalFiles(folder) if bucket_of(folder) is None else _Objects(folder)


def can_create(folder: str) -> bool:
    """Return True if `TableFiles.create` and `identity` work in a folder: in a bucket, they need obstore."""
    return bucket_of(folder) is None or importlib.util.find_spec("obstore") is not None


class _LocalFiles:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.OSFile(str(Path(self._folder, path)), "wb")

    def create(self, path: str, content: bytes) -> None:
        file = Path(self._folder, path)
        hidden = file.with_name(f".{uuid.uuid4()}.tmp")
        try:
            with hidden.open("xb") as new:
                new.write(content)
                new.flush()
                os.fsync(new.fileno())
            file.hardlink_to(hidden)  # fails if the name exists, unlike a rename
        finally:
            hidden.unlink(missing_ok=True)

    def read(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.OSFile(str(Path(self._folder, path)), "rb")

    def identity(self, path: str) -> object:
        try:
            found = Path(self._folder, path).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def times(self) -> Iterator[tuple[str, float]]:
        for file in Path(self._folder).iterdir():
            with contextlib.suppress(FileNotFoundError):  # VACUUM removed the file
                if file.is_file():
                    yield file.name, file.stat().st_mtime

    def size(self, path: str) -> int:
        return Path(self._folder, path).stat().st_size

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            Path(self._folder, path).unlink(missing_ok=True)

    def sizes(self) -> Iterator[tuple[str, int]]:
        for place, _, names in os.walk(self._folder):
            for name in names:
                file = Path(place, name)
                with contextlib.suppress(FileNotFoundError):  # VACUUM removed the file
                    yield os.path.relpath(file, self._folder), file.stat().st_size


class _Bytes:
    """Output of delta-rs, which takes bytes only: Arrow also writes buffers."""

    def __init__(self, stream: ObjectOutputStream) -> None:
        self._stream = stream
        self.closed = False

    def write(self, data: object) -> int:
        written = bytes(memoryview(data))  # type: ignore[arg-type]
        self._stream.write(written)
        return len(written)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()  # type: ignore[attr-defined]  # the stub lacks it


MOST_CLIENTS: Final = 8
"""Most clients that a process keeps, one for each bucket. Each has open connections and credentials."""
_clients: OrderedDict[str, _BucketClient] = OrderedDict()
"""Clients by bucket, the last used one at the end."""


class _BucketClient:
    """Clients of delta-rs and obstore for all tables of a bucket. They keep their connections."""

    def __init__(self, bucket: str, options: dict[str, str]) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        self.bucket = bucket
        self.options = options
        handler = DeltaStorageHandler(f"{S3}://{bucket}", options)
        self.outputs: DeltaFileSystemHandler = handler._handler  # noqa: SLF001  (the public class wraps its outputs)
        self.files = PyFileSystem(handler)

    def __repr__(self) -> str:
        return f"_BucketClient({self.bucket!r})"

    @cached_property
    def objects(self) -> S3Store:
        """Client of obstore, because delta-rs has no conditional PUT in its API."""
        return _object_store(self.bucket, self.options)


def _client_of(folder: str) -> _BucketClient:
    """Return the client of a folder's bucket, with the options that the process has now."""
    bucket, options = bucket_of(folder), options_of(folder)
    assert bucket is not None  # noqa: S101
    assert options is not None  # noqa: S101
    with _lock:
        client = _clients.pop(bucket, None)
        if client is None or client.options != options:
            client = _BucketClient(bucket, options)
        _clients[bucket] = client
        while len(_clients) > MOST_CLIENTS:
            _clients.popitem(last=False)
    return client


class _Objects:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._client = _client_of(folder)
        self._prefix = urlsplit(folder).path.strip("/")

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}".strip("/")

    def _path(self, key: str) -> str:
        return key.removeprefix(self._prefix).strip("/")

    def write(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        return pa.PythonFile(_Bytes(self._client.outputs.open_output_stream(self._key(path))), mode="w")

    def create(self, path: str, content: bytes) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            obstore.put(self._client.objects, self._key(path), content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            raise FileExistsError(f"{self._folder}/{path} exists") from None
        except BaseError as error:  # its cause may have the signed text
            raise OSError(without_secrets(str(error))) from None

    def read(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        file = self._client.files.open_input_file(self._key(path))
        if file.size() > AT_ONCE_BYTES:
            return file
        with file:
            return pa.BufferReader(file.read_buffer())

    def identity(self, path: str) -> object:
        import obstore

        try:
            return obstore.head(self._client.objects, self._key(path))["e_tag"]
        except FileNotFoundError:
            return None

    def times(self) -> Iterator[tuple[str, float]]:
        for found in self._listed(recursive=False):
            yield self._path(found.path), found.mtime.timestamp()

    def size(self, path: str) -> int:
        return int(self._client.files.get_file_info(self._key(path)).size)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._client.files.delete_file(self._key(path))

    def sizes(self) -> Iterator[tuple[str, int]]:
        for found in self._listed(recursive=True):
            yield self._path(found.path), found.size

    def _listed(self, *, recursive: bool) -> Iterator[FileInfo]:
        from pyarrow.fs import FileSelector, FileType

        for found in self._client.files.get_file_info(FileSelector(self._prefix, recursive=recursive)):
            if found.type == FileType.File:
                yield found


def _object_store(bucket: str, options: Mapping[str, str]) -> S3Store:
    """Return a client of obstore with the options of delta-rs."""
    from obstore.store import S3Store

    given = dict(options)
    client: dict[str, str] = {name: given.pop(name) for name in ("timeout", "connect_timeout") if name in given}
    if given.pop("aws_allow_http", "").lower() == "true":
        client["allow_http"] = "true"
    retries = {
        "max_retries": int(given.pop("max_retries")),
        "retry_timeout": _duration(given.pop("retry_timeout")),
    }
    del given["aws_s3_allow_unsafe_rename"]  # of delta-rs alone
    return S3Store(
        bucket,
        config=given,  # type: ignore[arg-type]  # texts, by names that differ
        client_options=client,  # type: ignore[arg-type]
        retry_config=retries,  # type: ignore[arg-type]
    )


def _duration(text: str) -> timedelta:
    """Return a duration that delta-rs takes as text: `30s`, `1m 30s`."""
    parts = re.findall(r"(\d+)\s*(ms|s|m|h)", text)
    return sum((int(number) * _UNITS[unit] for number, unit in parts), timedelta())


# The XML of a store has the access key, and for a wrong signature the text that was signed.

_SECRETS: Final = re.compile(
    r"<(AWSAccessKeyId|StringToSign|StringToSignBytes|CanonicalRequest|CanonicalRequestBytes|SignatureProvided|"
    r"Token-\d+)>.*?</\1>|\b(Credential|Signature|X-Amz-[\w-]+)=[^,\s&<>\"]+",
    re.DOTALL,
)


def without_secrets(text: str) -> str:
    """Return a text without the credentials that this process knows, and without the signed text of a store."""
    text = _SECRETS.sub("…", text)
    with _lock:
        known = {
            value
            for options in _options.values()
            for name, value in options.items()
            if name in _BY_NAME and _BY_NAME[name].secret
        }
    for value in sorted(known, key=len, reverse=True):
        text = text.replace(value, "…")
    return text
