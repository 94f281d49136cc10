"""Options of a bucket, and texts of its errors: which option wins, what is refused, and no credentials in any text."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from streaming_source.sinks import storage
from streaming_source.sinks.storage import (
    bucket_of,
    checked_options,
    files_in,
    options_of,
    storage_of,
    use_storage,
    without_secrets,
)
from streaming_source.sinks.storage_faults import storage_fault

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_options", {})
    monkeypatch.setattr(storage, "_clients", OrderedDict())


def test_names_with_and_without_prefix_are_one_option() -> None:
    assert checked_options({"AWS_REGION": "eu", "endpoint": "http://x", "max_retries": 3}) == {
        "aws_region": "eu",
        "aws_endpoint": "http://x",
        "max_retries": "3",
    }
    assert checked_options({"allow_http": True}) == {"aws_allow_http": "true"}
    assert checked_options(None) == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}, "conditional PUT"),
        ({"conditional_put": "disabled"}, "conditional PUT"),
        ({"aws_secret": "hidden-7"}, "aws_secret is not an option"),
        ({"region": "hidden-7", "AWS_REGION": "hidden-7"}, "is given twice"),
        ({"aws_secret_access_key": ["hidden-7"]}, "is not a text"),
        ({"aws_secret_access_key": ""}, "is not a text"),
    ],
)
def test_unknown_and_unsafe_options_are_refused_without_their_values(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        checked_options(given)
    assert "hidden-7" not in f"{refused.value!s} {refused.value!r} {refused.value.hint}"


def test_a_commit_is_a_conditional_put_whatever_the_options_say() -> None:
    use_storage("lake", {"aws_region": "eu", "aws_s3_allow_unsafe_rename": "true"})
    options = options_of("s3://lake/t")
    assert options is not None
    assert (options["aws_conditional_put"], options["aws_s3_allow_unsafe_rename"]) == ("etag", "false")
    assert options_of("/lake/t") is None


def test_tasks_get_the_options_of_their_buckets_only() -> None:
    use_storage("one", {"aws_region": "eu"})
    use_storage("two", {"aws_region": "us"})
    assert storage_of(["s3://one/a", "/local"]) == {"one": {"aws_region": "eu"}}
    assert (bucket_of("s3a://one/a"), bucket_of("/s3/one"), bucket_of("gs://one/a")) == ("one", None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("403 Forbidden <Code>SignatureDoesNotMatch</Code>", "refuses the credentials"),
        ("403 <Code>RequestTimeTooSkewed</Code>", "the clocks differ"),
        ("400 <Code>AuthorizationHeaderMalformed</Code>", "another region"),
        ("404 <Code>NoSuchBucket</Code>", "does not exist"),
        ("403 Forbidden <Code>AccessDenied</Code>", "does not allow"),
        ("501 Not Implemented", "conditional PUT"),
        ("503 Service Unavailable <Code>SlowDown</Code>", "fewer requests"),
        ("tcp connect error: Connection refused", "does not answer"),
    ],
)
def test_a_fault_names_the_bucket_and_the_remedy(text: str, said: str) -> None:
    fault = storage_fault(text, "s3://lake/t")
    assert fault is not None
    assert fault.text.startswith("the bucket lake ")
    assert said in fault.text
    assert fault.hint.endswith(".")


def test_other_texts_and_other_folders_have_no_fault() -> None:
    assert storage_fault("column x is missing", "s3://lake/t") is None
    assert storage_fault("403 Forbidden", "/lake/t") is None


def test_no_credential_is_left_in_a_text() -> None:
    use_storage(
        "lake", {"aws_access_key_id": "KEY77", "aws_secret_access_key": "hidden-7", "aws_session_token": "tok-9"}
    )
    text = (
        "<Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>OTHER</AWSAccessKeyId><StringToSign>AWS4\n20261202\nabc"
        "</StringToSign> hidden-7 KEY77 tok-9 Credential=AAA/2026/eu, Signature=0f0f"
    )
    left = without_secrets(text)
    assert "SignatureDoesNotMatch" in left
    assert not [one for one in ("OTHER", "AWS4", "hidden-7", "KEY77", "tok-9", "AAA", "0f0f") if one in left]


KEYS = {"aws_region": "eu", "aws_access_key_id": "KEY77", "aws_secret_access_key": "hidden-7"}


def test_a_bucket_has_one_client_until_its_options_change() -> None:
    use_storage("lake", KEYS)
    first = storage._client_of("s3://lake/a")
    assert storage._client_of("s3://lake/b/c") is first
    assert storage._client_of("s3://lake/a").objects is first.objects
    use_storage("lake", KEYS | {"aws_secret_access_key": "hidden-8"})
    second = storage._client_of("s3://lake/a")
    assert second is not first
    assert list(storage._clients.values()) == [second], "the old credentials are dropped"


def test_few_clients_are_kept_and_no_repr_has_credentials() -> None:
    for number in range(storage.MOST_CLIENTS + 3):
        use_storage(f"lake{number}", KEYS)
        storage._client_of(f"s3://lake{number}/a")
        storage._client_of("s3://lake0/a")
    assert len(storage._clients) == storage.MOST_CLIENTS
    assert "lake0" in storage._clients, "the last used ones are kept"
    assert repr(storage._clients["lake0"]) == "_BucketClient('lake0')"
    shown = f"{storage._clients!r} {files_in('s3://lake0/a')!r} {storage._client_of('s3://lake0/a').objects!r}"
    assert not [one for one in ("KEY77", "hidden-7") if one in shown]


def test_a_file_is_created_once(tmp_path: Path) -> None:
    files = files_in(str(tmp_path))
    assert files.identity("a") is None
    files.create("a", b"first")
    first = files.identity("a")
    with pytest.raises(FileExistsError):
        files.create("a", b"second")
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"first"
    assert files.identity("a") == first
    (tmp_path / "a").unlink()
    files.create("a", b"first")
    assert files.identity("a") != first


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("1m 30s", 90), ("500ms", 0.5), ("2h", 7200), ("0s", 0), ("1m5s10ms", 65.01)]
)
def test_durations_of_options(text: str, seconds: float) -> None:
    assert storage._duration(text).total_seconds() == seconds


def test_files_on_a_disk(tmp_path: Path) -> None:
    files = files_in(str(tmp_path))
    with files.write("a") as file:
        file.write(b"12345")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b").write_bytes(b"1")
    assert files.size("a") == 5
    with files.read("a") as file:
        assert file.read() == b"12345"
    assert sorted(files.sizes()) == [("a", 5), ("below/b", 1)]
    [(name, at)] = files.times()
    assert name == "a"
    assert at == (tmp_path / "a").stat().st_mtime
    files.remove(["a", "missing"])
    assert list(files.sizes()) == [("below/b", 1)]
    with pytest.raises(OSError, match="a"):
        files.read("a")
