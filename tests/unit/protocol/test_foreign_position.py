"""What operators paste for a GTID position and is none: each form is called by its name, with the way to convert it."""

from __future__ import annotations

import json

import pytest

from replica.errors import ConfigError
from replica.protocol.gtid import Gtid, GtidPosition, foreign_position

UUID = "3E11FA47-71CA-11E1-9E33-C80AA9429562"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bin.000007:4711", "--file-pos bin.000007:4711`"),
        (" mariadb-bin.1000007 4711 ", "--file-pos mariadb-bin.1000007:4711`"),
        ("bin.000007,4711", "--file-pos bin.000007:4711`"),
        ("bin.000007", "--file-pos bin.000007:4`"),
        (f"{UUID}:1-77", "a GTID set of MySQL"),
        (f"{UUID.lower()}:tag:5,{UUID}:1-3:9", "a GTID set of MySQL"),
        (json.dumps({"v": 1, "gtid": "0-1-5,7-2-9", "resume": "0-1-5", "server": {}}), "in it is 0-1-5,7-2-9: give"),
        (json.dumps({"file": "bin.000003", "pos": 154, "gtids": "0-1-9", "ts_sec": 1}), "in it is 0-1-9: give"),
        (json.dumps({"file": "bin.000003", "pos": 154, "gtids": f"{UUID}:1-7"}), "--file-pos bin.000003:154`"),
        ('{"topic": 3}', "JSON without a GTID position"),
        ('{"file": "bin.000003", "pos": "154"}', "JSON without a GTID position"),
        ('{"file": 3, "pos": 154}', "JSON without a GTID position"),
        ('{"file": "bin/000003", "pos": 154}', "JSON without a GTID position"),
    ],
)
def test_each_form_is_told_by_its_name(text: str, words: str) -> None:
    assert words in foreign_position(text)
    with pytest.raises(ConfigError, match="is not a GTID position: it is ") as caught:
        GtidPosition.parse(text)
    assert words in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        Gtid.parse(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "0-1-5", "0-1-5,1-1-1", "latest", "{", "[1]", "a.b:c", '{"a":', "{" * 70_000, "0-1"]
)
def test_what_is_none_of_them_is_left_to_others(text: str) -> None:
    assert foreign_position(text) == ""
