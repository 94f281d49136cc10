"""Names of targets: the template filled in, what is no template, and two tables that meet."""

from __future__ import annotations

import pytest

from replica.errors import ConfigError
from streaming_source.mirroring.control.target_names import TargetNames


def test_names_are_filled_in_and_quoted() -> None:
    names = TargetNames("lake.{database}_{table}")
    assert names.target(("shop", "o`r")) == "`lake`.`shop_o``r`"
    assert names.namespace(("shop", "orders")) == names.control_namespace == "`lake`"
    assert names.control == "`lake`.`mirror_control`"
    assert TargetNames("{table}").namespace(("shop", "orders")) is None
    each = TargetNames("cat.{database}.{table}", "cat.ops.ctl")
    assert (each.namespace(("shop", "a")), each.control) == ("`cat`.`shop`", "`cat`.`ops`.`ctl`")


def test_targets_may_be_folders() -> None:
    names = TargetNames("s3://lake/mirror/{database}/{table}")
    assert names.target(("shop", "a/b c")) == "`delta`.`s3://lake/mirror/shop/a_b_c`"
    assert names.control == "`delta`.`s3://lake/mirror/mirror_control`"
    assert names.namespace(("shop", "a")) is names.control_namespace is None
    elsewhere = TargetNames("lake.{table}", "/ops/ctl")
    assert (elsewhere.control, elsewhere.control_namespace) == ("`delta`.`/ops/ctl`", None)
    assert "a.b c and a.b_c would both become" in met(names, ("a", "b c"), ("a", "b_c"))[("a", "b_c")]


def test_names_of_iceberg_begin_with_their_catalog() -> None:
    names = TargetNames("lake.{table}", kind="iceberg:default")
    assert names.target(("shop", "o`r")) == "`iceberg:default`.`lake`.`o``r`"
    assert names.control == "`iceberg:default`.`lake`.`mirror_control`"
    assert names.namespace(("shop", "a")) is names.control_namespace is None


@pytest.mark.parametrize(
    "into", ["lake.{database}", "lake.{tables}", "lake..{table}", "`lake`.{table}", "{database}.{table}"]
)
def test_what_is_no_template_is_refused(into: str) -> None:
    with pytest.raises(ConfigError, match="into="):
        TargetNames(into)


@pytest.mark.parametrize(
    "into", ["lake/{database}/{table}", "~/lake/{table}", "C:\\lake\\{table}", "file:/lake/{table}"]
)
def test_folders_that_are_not_named_from_their_root_are_refused(into: str) -> None:
    with pytest.raises(ConfigError, match="neither the name of a table nor a folder"):
        TargetNames(into)


def met(names: TargetNames, *tables: tuple[str, str]) -> dict[tuple[str, str], str]:
    """The errors of tables that find their target taken."""
    return {name: str(error) for name, error in names.meetings(tables).items()}


def test_of_two_tables_with_one_target_the_first_by_name_has_it() -> None:
    names = TargetNames("lake.{database}_{table}")
    assert met(names, ("a", "b_c"), ("a", "d")) == {}
    found = met(names, ("a_b", "c"), ("a", "b_c"), ("a", "d"))
    assert list(found) == [("a_b", "c")]
    assert "a.b_c and a_b.c would both become `lake`.`a_b_c`" in found["a_b", "c"]
    assert list(met(names, ("a", "t"), ("a", "T"))) == [("a", "t")]


def test_targets_are_compared_as_their_catalog_or_their_folders_are() -> None:
    german, dotted = [("a", "straße"), ("a", "strasse")], [("a.b", "t"), ("a", "b.t")]
    for into in ("lake.{database}_{table}", "/lake/{database}/{table}"):
        assert met(TargetNames(into), *german, *dotted) == {}
    assert met(TargetNames("/lake/{database}/{table}"), ("a", "T"), ("a", "t")) == {}
    assert list(met(TargetNames("lake.{table}"), ("a", "STRAßE"), ("a", "straße"))) == [("a", "straße")]
    found = met(TargetNames("/lake/{database}.{table}"), *dotted)
    assert "a.`b.t` and `a.b`.t would both become `delta`.`/lake/a.b.t`" in found["a.b", "t"]
    assert TargetNames("/lake/{database}/{table}").target(("a", "..")) == "`delta`.`/lake/a/_`"
