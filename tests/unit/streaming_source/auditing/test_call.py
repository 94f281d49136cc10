"""What `audit()` refuses before it asks anyone: a file of settings may hold anything."""

from __future__ import annotations

from typing import Any

import pytest

from replica.errors import ConfigError
from streaming_source.auditing.call import audit


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no table with its copy"),
        ({"tables": {}}, "no table with its copy"),
        ({"tables": "shop.orders"}, "no table with its copy"),
        ({"tables": {"a.b": "c"}, "mirror": "lake.mirror_control"}, "already has the tables and their position"),
        ({"at": "0-1-1", "mirror": "lake.mirror_control"}, "already has the tables and their position"),
        ({"tables": {"a.b": "c"}, "buckets": "many"}, "buckets=many is not a number from 1 to 65536"),
        ({"tables": {"a.b": "c"}, "shown": 0}, "shown=0 is not a number from 1 to 10000"),
        ({"tables": {"a.b": "c"}, "columns": "id"}, "option columns is not allowed in an audit"),
        ({"tables": {"a.b": "c"}, "EndingPosition": "0-1-1"}, "option EndingPosition is not allowed in an audit"),
        ({"tables": {"a.b": "c"}, "hots": "db1"}, "unknown option 'hots'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_read(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        audit(None, **given)
