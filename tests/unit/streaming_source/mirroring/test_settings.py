"""Arguments of a mirror: what cannot be is refused by its name, and no secret is shown."""

from __future__ import annotations

from typing import Any

import pytest

from replica.errors import ConfigError
from streaming_source.mirroring.settings import MirrorSettings, mirror_settings
from streaming_source.ruling.target_columns import PROPERTIES

SERVER = {"host": "db1", "user": "repl", "password": "hidden-word"}
GIVEN: dict[str, Any] = {
    "tables": "shop.*",
    "into": "lake.{table}",
    "checkpoint": "/checkpoints/mirror/",
    "control": None,
    "on_truncate": "apply",
    "on_swap": "apply",
    "on_drop": "keep",
    "on_alter": "evolve",
    "parallel": 4,
    "properties": None,
    "rules": None,
    "hash_key_file": None,
    "source": SERVER,
}


LOG = {"kind": "parquet", "into": "/lake/{table}", "rules": {"shop.*": {"mode": "append_log"}}}


def settings(**changed: object) -> MirrorSettings:
    return mirror_settings(**GIVEN | changed)


def test_options_become_those_of_the_stream() -> None:
    made = settings(
        source=SERVER | {"compress": True, "port": 3307}, properties={"delta.enableDeletionVectors": "false"}
    )
    assert made.given["compress"] == "true"
    assert made.options.initial
    assert made.options.wants_ddl
    assert made.options.patterns == ("shop.*",)
    assert made.checkpoint == "/checkpoints/mirror"
    assert made.properties == PROPERTIES | {"delta.enableDeletionVectors": "false"}
    assert "hidden-word" not in repr(made)


@pytest.mark.parametrize(
    ("limits", "joined"),
    [
        ({}, ("10000", "2s")),
        ({"maxRowsPerTrigger": 500}, ("500", "2s")),
        ({"maxrowspertrigger": "2000000"}, ("10000", "2s")),
        ({"minrowspertrigger": 1}, ("1", "2s")),
        ({"maxTriggerDelay": "1m"}, ("10000", "1m")),
    ],
)
def test_small_batches_are_joined_up_unless_the_call_says_otherwise(
    limits: dict[str, object], joined: tuple[str, str]
) -> None:
    made = settings(source=SERVER | limits)
    given = {name.lower(): value for name, value in made.given.items()}
    assert (given["minrowspertrigger"], given["maxtriggerdelay"]) == joined
    assert str(made.options.min_rows_per_trigger) == joined[0]


def test_a_log_in_folders_has_no_properties_of_delta() -> None:
    made = settings(**LOG)
    assert made.properties == {}
    assert made.names.target(("shop", "orders")) == "`parquet`.`/lake/orders`"
    assert made.names.control == "`parquet`.`/lake/mirror_control`"
    assert settings(**LOG, control="/ops/control").names.control == "`parquet`.`/ops/control`"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": SERVER | {"columns": "id"}}, "option columns is not for a mirror: a mirror holds whole rows"),
        ({"source": SERVER | {"startingPosition": "latest"}}, "option startingPosition is not for a mirror"),
        ({"source": SERVER | {"skipUnpreparedXa": True}}, "leaves no rows out"),
        ({"source": {"host": "db1"}}, "option user is missing"),
        ({"source": SERVER | {"hosst": "db1"}}, "hosst"),
        ({"checkpoint": " "}, "checkpointLocation is missing"),
        ({"parallel": 0}, "parallel=0 is not from 1 to 64"),
        ({"on_truncate": "ignore"}, "onTruncate='ignore' is none of apply, stop"),
        ({"on_swap": "keep"}, "onSwap='keep' is none of apply, stop"),
        ({"on_drop": "stop"}, "onDrop='stop' is none of keep, drop"),
        ({"on_alter": ""}, "onAlter='' is none of evolve, stop"),
        ({"into": "lake.t"}, "has no {table}"),
        ({"kind": "csv"}, "format='csv' is none of delta, parquet"),
        (
            {**LOG, "into": "lake.{table}"},
            "format=parquet writes folders, and into, or control, is the name of a table",
        ),
        ({**LOG, "control": "lake.control"}, "format=parquet writes folders"),
        ({**LOG, "rules": None}, "has the mode append_log alone, and tables without a rule have the mode current"),
        ({**LOG, "rules": {"shop.a": {"mode": "history"}}}, "the rule shop.a asks for the mode history"),
        ({**LOG, "audit_every": "1d"}, "auditEvery compares rows, and targets with format=parquet hold changes"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(**changed)
    assert message in str(refused.value)
    assert "hidden-word" not in str(refused.value)
