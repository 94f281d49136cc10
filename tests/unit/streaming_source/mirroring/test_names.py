"""Names of targets: the template filled in, what is no template, and two tables that meet."""

from __future__ import annotations

import pytest

from replica.errors import ConfigError
from streaming_source.mirroring.names import TargetNames


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
    with pytest.raises(ConfigError, match=r"a\.b c and a\.b_c would both become"):
        names.check([("a", "b c"), ("a", "b_c")], {})


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


def test_two_tables_with_one_target_are_refused() -> None:
    names = TargetNames("lake.{database}_{table}")
    names.check([("a", "b_c"), ("a", "d")], {"`lake`.`a_b_c`": ("a", "b_c")})
    with pytest.raises(ConfigError, match=r"a_b\.c and a\.b_c would both become `lake`\.`a_b_c`"):
        names.check([("a_b", "c"), ("a", "b_c")], {})
    with pytest.raises(ConfigError, match=r"a\.T and a\.t would both"):
        names.check([("a", "t")], {"`lake`.`a_t`": ("a", "T")})


def test_targets_are_compared_as_their_catalog_or_their_folders_are() -> None:
    german, dotted = [("a", "straße"), ("a", "strasse")], [("a.b", "t"), ("a", "b.t")]
    for into in ("lake.{database}_{table}", "/lake/{database}/{table}"):
        TargetNames(into).check([*german, *dotted], {})
    TargetNames("/lake/{database}/{table}").check([("a", "T"), ("a", "t")], {})
    with pytest.raises(ConfigError, match=r"a\.STRAßE and a\.straße would both"):
        TargetNames("lake.{table}").check([("a", "STRAßE"), ("a", "straße")], {})
    with pytest.raises(ConfigError, match=r"`a\.b`\.t and a\.`b\.t` would both become `delta`\.`/lake/a\.b\.t`"):
        TargetNames("/lake/{database}.{table}").check(dotted, {})
    assert TargetNames("/lake/{database}/{table}").target(("a", "..")) == "`delta`.`/lake/a/_`"
