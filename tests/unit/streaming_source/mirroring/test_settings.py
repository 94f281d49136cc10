"""Arguments of a mirror: what cannot be is refused by its name, and no secret is shown."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from replica.errors import ConfigError
from streaming_source.mirroring.arguments import ARGUMENTS, BY_NAME
from streaming_source.mirroring.call import mirror
from streaming_source.mirroring.settings import MirrorSettings, check_trigger, mirror_settings
from streaming_source.mirroring.writers.choose import FORMATS
from streaming_source.mirroring.writers.native.upkeep import upkeep_properties
from streaming_source.transforms.transformed_images import NOT_NATIVE, PROPERTIES
from tools.pages.arguments import PAGE, with_arguments

SERVER = {"host": "db1", "user": "repl", "password": "hidden-word"}
GIVEN: dict[str, Any] = {one.name: one.default for one in ARGUMENTS} | {
    "tables": "shop.*",
    "into": "lake.{table}",
    "checkpointLocation": "/checkpoints/mirror/",
}


LOG = {"format": "parquet", "into": "/lake/{table}", "rules": {"shop.*": {"mode": "append_log"}}}


def settings(*, source: dict[str, object] | None = None, **changed: object) -> MirrorSettings:
    return mirror_settings(GIVEN | changed, SERVER if source is None else source)


def test_options_become_those_of_the_stream() -> None:
    made = settings(
        source=SERVER | {"compress": True, "port": 3307}, tableProperties={"delta.enableDeletionVectors": "false"}
    )
    assert made.given["compress"] == "true"
    assert made.options.initial
    assert made.options.wants_ddl
    assert made.options.patterns == ("shop.*",)
    assert made.checkpoint == "/checkpoints/mirror"
    native = {name: value for name, value in PROPERTIES.items() if name not in NOT_NATIVE}
    assert made.properties == native | upkeep_properties({}) | {"delta.enableDeletionVectors": "false"}
    assert "hidden-word" not in repr(made)


@pytest.mark.parametrize(
    ("limits", "joined"),
    [
        ({}, ("10000", "500ms")),
        ({"maxRowsPerTrigger": 500}, ("500", "500ms")),
        ({"maxrowspertrigger": "2000000"}, ("10000", "500ms")),
        ({"minrowspertrigger": 1}, ("1", "500ms")),
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


def test_spark_alone_writes_where_it_is_asked_to_or_the_format_is_another() -> None:
    assert settings().writer == "native"
    spark = settings(writer="spark")
    assert (spark.writer, spark.properties) == ("spark", PROPERTIES)
    assert spark.options.max_trigger_delay_s == 2
    assert settings(**LOG).writer == "spark"


def test_new_targets_of_the_native_writer_and_its_control_table_bound_their_logs() -> None:
    made = settings(
        writer="native", tableProperties={"delta.deletedFileRetentionDuration": "interval 1 days", "p": "q"}
    )
    bounds = {
        "delta.logRetentionDuration": "interval 1 days",
        "delta.deletedFileRetentionDuration": "interval 1 days",
        "delta.checkpointInterval": "20",
    }
    assert made.control_properties == bounds
    assert {name: made.properties[name] for name in bounds} == bounds
    spark = settings(writer="spark")
    assert not spark.control_properties
    assert not bounds.keys() & spark.properties.keys()


def test_iceberg_has_its_catalog_in_the_names_and_hides_its_properties() -> None:
    given = {"type": "rest", "uri": "https://h", "token": "hidden-word", "name": "mine"}
    made = settings(format="iceberg", icebergCatalog=given)
    assert made.names.target(("shop", "orders")) == "`iceberg:mine`.`lake`.`orders`"
    assert made.writer == "spark"
    assert "hidden-word" not in repr(made)
    assert "delta.enableDeletionVectors" not in made.properties


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"into": "/lake/{table}"}, "format=iceberg writes tables of a catalog, but into or control is a folder"),
        ({"format": "delta"}, "icebergCatalog is for format=iceberg, but format=delta"),
        ({"writer": "native"}, "writer=native writes only Delta tables"),
        ({"icebergCatalog": ["hidden-word"]}, "icebergCatalog is not a name, or a table of names and values"),
    ],
)
def test_what_iceberg_cannot_be_is_refused(changed: dict[str, object], message: str) -> None:
    given = {"format": "iceberg", "icebergCatalog": {"type": "rest", "password": "hidden-word"}} | changed
    with pytest.raises(ConfigError) as refused:
        settings(**given)
    assert message in str(refused.value)
    assert "hidden-word" not in str(refused.value)


def test_a_log_in_folders_has_no_properties_of_delta() -> None:
    made = settings(**LOG)
    assert made.properties == {}
    assert made.names.target(("shop", "orders")) == "`parquet`.`/lake/orders`"
    assert made.names.control == "`parquet`.`/lake/mirror_control`"
    assert settings(**LOG, control="/ops/control").names.control == "`parquet`.`/ops/control`"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": SERVER | {"columns": "id"}}, "option columns is not for a mirror: a mirror needs whole rows"),
        ({"source": SERVER | {"startingPosition": "latest"}}, "option startingPosition is not for a mirror"),
        ({"source": SERVER | {"skipUnpreparedXa": True}}, "must not lose rows"),
        ({"source": {"host": "db1"}}, "option user is missing"),
        ({"source": SERVER | {"hosst": "db1"}}, "hosst"),
        ({"checkpointLocation": " "}, "checkpointLocation is missing"),
        ({"parallel": 0}, "parallel=0 is not from 1 to 64"),
        ({"onTruncate": "ignore"}, "onTruncate='ignore' is not one of apply, stop"),
        ({"onSwap": "keep"}, "onSwap='keep' is not one of apply, stop"),
        ({"onCascade": "keep"}, "onCascade='keep' is not one of apply, ignore, stop"),
        ({"onDrop": "stop"}, "onDrop='stop' is not one of keep, drop"),
        ({"onAlter": ""}, "onAlter='' is not one of evolve, stop"),
        ({"into": "lake.t"}, "has no {table}"),
        ({"format": "csv"}, "format='csv' is not one of delta, parquet"),
        (
            {**LOG, "into": "lake.{table}"},
            "format=parquet writes folders, but into or control is the name of a table",
        ),
        ({**LOG, "control": "lake.control"}, "format=parquet writes folders"),
        ({**LOG, "rules": None}, "supports only the mode append_log, but tables without a rule have the mode current"),
        ({**LOG, "rules": {"shop.a": {"mode": "history"}}}, "the rule shop.a asks for the mode history"),
        ({"writer": "rust"}, "writer='rust' is not one of spark, native"),
        ({**LOG, "writer": "native"}, "writer=native writes only Delta tables, but format=parquet"),
        ({**LOG, "auditEvery": "1d"}, "auditEvery compares rows, but targets with format=parquet hold changes"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(**changed)
    assert message in str(refused.value)
    assert "hidden-word" not in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"parallel": "4"}, "parallel='4' is not a whole number"),
        ({"parallel": 2.5}, "parallel=2.5 is not a whole number"),
        ({"parallel": True}, "parallel=True is not a whole number"),
        ({"tables": 5}, "tables=5 is not a string"),
        ({"into": 5}, "into=5 is not a string"),
        ({"checkpointLocation": 5}, "checkpointLocation=5 is not a path"),
        ({"control": ""}, "control='' is not the name of a table"),
        ({"hashKeyFile": False}, "hashKeyFile=False is not a path"),
        ({"auditEvery": True}, "auditEvery=True is not a time such as 6h"),
        (
            {"tableProperties": {"delta": {"appendOnly": "true"}}},
            "tableProperties: delta has a value of the wrong kind",
        ),
        (
            {"source": SERVER | {"onTruncat": "stop"}},
            "onTruncat is not an argument of a mirror. Did you mean onTruncate?",
        ),
        ({"source": SERVER | {"checkpointlocation": "/c"}}, "It is spelt checkpointLocation"),
        ({"source": SERVER | {"HOST": "db2"}}, "the options host and HOST are the same"),
        ({"source": SERVER | {"pasword": "hidden-word"}}, "Did you mean password?"),
    ],
)
def test_what_is_of_another_kind_is_refused_by_its_name(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(**changed)
    assert message in str(refused.value)
    assert "hidden-word" not in str(refused.value)


def test_paths_none_and_switches_are_what_they_look_like() -> None:
    made = settings(
        checkpointLocation=Path("/checkpoints/mirror"),
        tableProperties={"delta.appendOnly": True, "delta.logRetentionDuration": "interval 2 days", "mine": 7},
        source=SERVER | {"passwordFile": None},
    )
    assert made.checkpoint == "/checkpoints/mirror"
    assert "passwordFile" not in made.given
    assert made.properties["delta.appendOnly"] == "true"
    assert made.properties["mine"] == "7"


def test_the_table_of_arguments_is_that_of_the_call() -> None:
    parameters = inspect.signature(mirror).parameters.values()
    named = [one for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    assert [one.name for one in named] == [one.name for one in ARGUMENTS]
    empty = inspect.Parameter.empty
    defaults = {one.name: (one.default is empty, None if one.default is empty else one.default) for one in named}
    assert defaults == {one.name: (one.needed, one.default) for one in ARGUMENTS}
    for one in ARGUMENTS:
        assert one.default is None or not one.choices or one.default in one.choices
    assert BY_NAME["format"].choices == tuple(FORMATS)


def test_the_page_has_the_table_of_arguments() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_arguments(page) == page, "run python -m tools.pages.arguments"


@pytest.mark.parametrize(
    "trigger",
    [{}, {"procesingTime": "5 seconds"}, {"processingTime": 5}, {"availableNow": "yes"}, {"availableNow": False}],
)
def test_what_is_no_trigger_is_refused(trigger: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="is not one of Spark's triggers"):
        check_trigger(trigger)


def test_triggers_of_spark_are_taken() -> None:
    for trigger in (None, {"processingTime": "5 seconds"}, {"availableNow": True}, {"once": True}):
        check_trigger(trigger)


@pytest.mark.parametrize("place", ["s3a://lake/{table}", "s3://lake/{database}/{table}"])
def test_parquet_is_refused_in_a_bucket(place: str) -> None:
    rules = {"shop.*": {"mode": "append_log"}}
    with pytest.raises(ConfigError, match="S3 renames objects one by one"):
        settings(into=place, format="parquet", rules=rules)


def test_storage_options_are_in_no_text() -> None:
    secret = "hidden-7"
    made = settings(storageOptions={"AWS_SECRET_ACCESS_KEY": secret})
    assert made.storage == {"aws_secret_access_key": secret}
    assert secret not in repr(made)
    assert secret not in str(made.given)
    with pytest.raises(ConfigError, match="storageOptions is not a table") as refused:
        settings(storageOptions=secret)
    assert secret not in str(refused.value)
