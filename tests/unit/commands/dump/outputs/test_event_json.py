from __future__ import annotations

import io
import json
from typing import Any

import pytest

from replica.commands.dump.outputs.json_lines import write_events
from tests.unit.commands.dump.files import reading, vector
from tests.vectors.load import BINLOGS, name_of


def events(path: Any) -> list[dict[str, Any]]:
    out = io.BytesIO()
    write_events(reading([path]), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("path", BINLOGS, ids=name_of)
def test_every_event_of_every_file_comes_once(path: Any) -> None:
    found = events(path)
    assert found[0]["offset"] == 4
    assert [one["offset"] for one in found[1:]] == [one["end"] for one in found[:-1]]
    assert found[-1]["end"] == path.stat().st_size


def test_fields_are_the_decoded_ones() -> None:
    by_type: dict[str, dict[str, Any]] = {}
    for one in events(vector("11.8/metadata_full")):
        by_type.setdefault(one["type"], one)
    assert by_type["Gtid"]["fields"]["gtid"].startswith("0-1-")
    assert by_type["Query"]["fields"]["query"].startswith("CREATE")
    assert by_type["Query"]["time"] == "2023-11-14 22:13:20"
    table = by_type["Table_map"]["fields"]
    assert table["database"] == "v.1"
    assert table["columns"][0] == {
        "type": "LONG",
        "metadata": "",
        "length": 4,
        "name": "a",
        "unsigned": False,
    }
    assert by_type["Write_rows_v1"]["fields"]["images_bytes"] > 0


def test_statements_are_text_in_their_own_character_set() -> None:
    found = [one["fields"] for one in events(vector("11.8/transactions")) if one["type"] == "User_var"]
    assert found[0]["name"] == {"hex": "74657874"}
    assert [one["kind"] for one in found if "kind" in one]
