"""upsert_into: the MERGE it writes, and what it refuses before it asks Spark for anything."""

from __future__ import annotations

import pytest

from replica.errors import ConfigError
from streaming_source import upsert_into
from streaming_source.sinks.upserts import merge_statement


def test_whole_images_are_taken_over() -> None:
    assert merge_statement("lake.t", ["id"], ["id", "name"], partial=False) == (
        "MERGE INTO lake.t AS target USING {changes} AS change ON target.`id` <=> change.`id` "
        "WHEN MATCHED AND change._op = 'delete' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET target.`id` = change.`id`, target.`name` = change.`name` "
        "WHEN NOT MATCHED AND change._op <> 'delete' THEN INSERT (`id`, `name`) VALUES (change.`id`, change.`name`)"
    )


def test_columns_that_no_change_has_set_keep_their_value() -> None:
    merge = merge_statement("t", ["id"], ["id", "name"], partial=True)
    assert "target.`id` = change.`id`," in merge
    assert (
        "target.`name` = CASE WHEN coalesce(array_contains(change._absent, CAST(X'6e616d65' AS STRING)), false) "
        "THEN target.`name` ELSE change.`name` END" in merge
    )


def test_names_are_quoted_for_sql_and_for_sparks_parameters() -> None:
    name = "o'n`e\\{x}"
    merge = merge_statement("delta.`/a{b}`", [name], [name, "v'"], partial=True)
    assert merge.startswith("MERGE INTO delta.`/a{{b}}` AS target USING {changes}")
    assert "target.`o'n``e\\{{x}}` <=> change.`o'n``e\\{{x}}`" in merge
    assert "array_contains(change._absent, CAST(X'7627' AS STRING))" in merge
    assert merge.format(changes="x").count("USING x AS change") == 1


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no columns"):
        upsert_into("lake.t", keys="id")
    with pytest.raises(ConfigError, match="names no columns"):
        upsert_into("lake.t", keys=[])
    with pytest.raises(ConfigError, match="needs the name of a table"):
        upsert_into(" ", keys=["id"])
    assert repr(upsert_into("lake.t", keys=["id"])) == "upsert_into('lake.t', keys=['id'])"
