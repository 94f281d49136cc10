from __future__ import annotations

import io
from typing import Any

from replica.commands.dump.outputs.human import HumanDump
from replica.protocol.gtid import GtidPosition
from replica.readers.rows.reading import ChosenTransactions
from tests.unit.commands.dump.files import reading, vector


def text(*files: Any, **more: Any) -> str:
    out = io.BytesIO()
    only_rows = bool(more.get("patterns"))
    HumanDump(reading(files, **more), out, only_rows=only_rows).write()
    return out.getvalue().decode()


def only(gtid: str) -> ChosenTransactions:
    domain, server, number = gtid.split("-")
    return ChosenTransactions(
        start=GtidPosition.parse(f"{domain}-{server}-{int(number) - 1}"), stop=GtidPosition.parse(gtid)
    )


def test_a_transaction_reads_like_this() -> None:
    assert (
        text(vector("11.8/minimal_image"), selection=only("0-1-5"))
        == """\
#
# minimal_image.binlog; all times are UTC
#
# at 1117  GTID 0-1-5  2023-11-14 22:13:20 UTC  server 1  thread 9  transactional
# at 1155  Annotate_rows
#Q> UPDATE keyed SET a = a + 1
# at 1200  Table_map `v`.`keyed`, table id 18, 5 columns
# at 1250  Write_rows_v1
""".replace("# at 1250  Write_rows_v1\n", "")
        + """\
# at 1250  Update_rows_v1 table id 18, 20 bytes of rows, ends the statement
### UPDATE `v`.`keyed`
### WHERE
###   `id`=1 /* INT UNSIGNED NOT NULL */
### SET
###   `a`=11 /* INT */
### UPDATE `v`.`keyed`
### WHERE
###   `id`=2 /* INT UNSIGNED NOT NULL */
### SET
###   `a`=21 /* INT */
# at 1300  Xid 20, COMMIT
"""
    )


def test_types_are_told_as_far_as_they_are_known() -> None:
    found = text(vector("11.8/metadata_full"))
    for words in (
        "`d`=9999999.99 /* DECIMAL(9,2) */",
        "`h`=18446744073709551615 /* BIGINT UNSIGNED */",
        "`y`=2155 /* YEAR */",
        "`b`='ab' /* CHAR(5) latin1 */",
        "`e`='b,c' /* ENUM */",
        "`g`=X'00FF' /* VARBINARY(300) */",
        "`h`=NULL /* BIGINT UNSIGNED */",
    ):
        assert words in found, words


def test_rows_of_prepared_transactions_stand_at_their_commit() -> None:
    found = text(vector("11.8/transactions"))
    commit = found.index("XA COMMIT X'7831'")
    assert found.index("`b`='xa' ") < commit
    assert found.index("GTID 0-1-14") < found.index("`b`='xa' ")
    assert found.count("`b`='xa' ") == 1, "the other was rolled back"


def test_patterns_show_only_rows_with_their_transactions() -> None:
    found = text(vector("11.8/minimal_image"), patterns=["v.uniquely"])
    assert "`v`.`uniquely`" in found
    assert "keyed" not in found
    assert "CREATE TABLE" not in found
    assert found.count("GTID ") == 2


def test_events_between_transactions_are_shown_without_a_selection() -> None:
    assert "Gtid_list empty" in text(vector("11.8/transactions"))
    assert "Gtid_list" not in text(vector("11.8/transactions"), selection=only("0-1-5"))


def test_unnamed_columns_say_what_they_may_be() -> None:
    found = text(vector("11.8/rotation.2"))
    assert "###   @1=" in found


def test_a_file_that_ends_inside_a_transaction(tmp_path: Any) -> None:
    data = vector("11.8/minimal_image").read_bytes()
    path = tmp_path / "crash.binlog"
    path.write_bytes(data[:1300])  # before the XID of 0-1-5
    found = text(path)
    assert "the file ends inside this transaction" in found
    assert "`a`=11" not in found
