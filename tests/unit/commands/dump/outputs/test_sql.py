from __future__ import annotations

import io
from typing import Any

from replica.commands.dump.outputs.sql import HEAD, SessionSettings, SqlDump
from tests.unit.commands.dump.files import reading, said, vector


def sql(*files: Any, **more: Any) -> str:
    out = io.BytesIO()
    read = reading(files, need_names=True, **more)
    SqlDump(read, out, only_rows=bool(more.get("patterns"))).write()
    text = out.getvalue().decode()
    assert text.startswith(HEAD)
    return text


def test_rows_are_found_by_their_key() -> None:
    found = sql(vector("11.8/minimal_image"))
    assert "UPDATE `v`.`keyed` SET `a` = 11 WHERE `id` <=> 1 LIMIT 1;\n" in found
    assert "DELETE FROM `v`.`keyed` WHERE `id` <=> 1 LIMIT 1;\n" in found
    assert "INSERT INTO `v`.`keyed` SET `id` = 3, `b` = NULL;\n" in found


def test_without_a_key_all_columns_find_the_row_and_text_is_compared_exactly() -> None:
    found = sql(vector("11.8/minimal_image"))
    assert "DELETE FROM `v`.`keyless` WHERE `a` <=> 1 AND `b` <=> 7 LIMIT 1;\n" in found
    full = sql(vector("11.8/metadata_full"))
    assert "`a` <=> 'a' COLLATE utf8mb4_nopad_bin" in full


def test_literals_are_exact() -> None:
    found = sql(vector("11.8/metadata_full"))
    assert "`g` = X'00FF'" in found
    assert "`i` = -0.10000000149011612" in found, "the double that equals the FLOAT"
    assert "`d` = '2024-02-29" in found or "'2024-02-29'" in found


def test_xa_transactions_become_plain_ones() -> None:
    found = sql(vector("11.8/transactions"))
    assert "START TRANSACTION;\nINSERT INTO `v`.`t` SET `a` = 11, `b` = 'xa';\n-- XA COMMIT" in found
    assert "`a` = 12" not in found


def test_statements_bring_their_context() -> None:
    found = sql(vector("11.8/transactions"))
    assert "SET @`text` := _utf8mb4 X'c3a9';\n" in found
    assert "SET insert_id = 1;\n" in found
    assert "SET rand_seed1 = " in found
    assert found.index("CREATE DATABASE v;") < found.index("USE `v`;")


def test_old_versions_of_rows_are_left_to_the_server() -> None:
    found = sql(vector("11.8/metadata_full"), patterns=["`v.1`.versioned"])
    assert "row_end" not in found
    assert "INSERT INTO `v.1`.`versioned` SET `a` = 1" in found
    assert "DELETE FROM `v.1`.`versioned` WHERE" in found


def test_tables_without_names_are_left_out_and_it_is_said() -> None:
    read = reading([vector("11.8/rotation.2")], need_names=True)
    SqlDump(read, io.BytesIO(), only_rows=False).write()
    assert "rows of v.t are not shown" in said(read)
    assert read.notices.exit_code == 60


def test_settings_are_written_when_they_change() -> None:
    session = SessionSettings()
    assert session.change({"a": "1"}) == "SET a = 1;\n"
    assert session.change({"a": "1"}) == ""
    assert session.use("x`y") == "USE `x``y`;\n"
    assert session.use("x`y") == ""
    session.leave()
    assert session.use("x`y") == "USE `x``y`;\n"
