"""A name belongs to one running query, is the same at its next start, and says what the query reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from replica.relay_log.directory.readers import make_readers_directory
from streaming_source.attached import registration as attached_name
from streaming_source.attached.registration import made_name, take_name
from streaming_source.options.source_options import SourceOptions

if TYPE_CHECKING:
    from pathlib import Path


def _options(**given: str) -> SourceOptions:
    tables = {} if "tables" in given else {"table": "shop.orders"}
    return SourceOptions.parse({**tables, "relayDir": "/relay", **given})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(attached_name, "PATIENCE_S", 0.0)
    make_readers_directory(tmp_path)
    return tmp_path


def test_a_name_given_is_taken_once(folder: Path) -> None:
    first = take_name(folder, _options(readerName="orders"))
    assert first.text == "orders"
    with pytest.raises(RelayError, match=r"another query reads .* as readerName=orders"):
        take_name(folder, _options(readerName="orders"))
    first.close()
    take_name(folder, _options(readerName="orders")).close()


def test_made_names_are_numbered_and_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached_name, "MAX_QUERIES", 3)
    taken = [take_name(folder, _options()) for _ in range(3)]
    assert [name.text.rpartition("-")[2] for name in taken] == ["1", "2", "3"]
    with pytest.raises(RelayError, match="3 queries of these tables"):
        take_name(folder, _options())
    taken[1].close()
    assert take_name(folder, _options()).text == taken[1].text
    assert take_name(folder, _options(tables="shop.*")).text.endswith("-1")


def test_a_made_name_says_what_is_read() -> None:
    assert made_name(_options()).startswith("spark-shop.orders-")
    assert made_name(_options(tables="shop.*,crm.customer")).startswith("spark-shop._crm.customer-")
    assert made_name(_options(tables="*.*")).startswith("spark-tables-")
    assert made_name(_options()) != made_name(_options(rowShape="flat"))
    assert made_name(_options()) == made_name(_options(startingPosition="earliest"))
    assert len(made_name(_options(tables=",".join(f"d.t{n}" for n in range(1000))))) < 80


def test_a_folder_that_cannot_be_written_is_an_error_of_rights(tmp_path: Path) -> None:
    with pytest.raises(RelayError, match=r"cannot register .*readers/orders\.lock cannot be written.*group"):
        take_name(tmp_path / "nowhere", _options(readerName="orders"))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on, where pytest has threads
def test_a_name_ends_with_its_process(folder: Path) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            take_name(folder, _options(readerName="orders"))
            code = 0
        finally:
            os._exit(code)  # whatever happens: a second process must not go on with the tests
    assert os.waitpid(child, 0)[1] == 0
    take_name(folder, _options(readerName="orders")).close()
