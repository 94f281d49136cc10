"""What a query says that may not go on behind a statement without rows: advice that holds for this statement."""

from __future__ import annotations

import pytest

from streaming_source.rows.statements import statement_error
from tests.unit.schema.ddl import logged


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    ("sql", "ddl"),
    [
        ("UPDATE t SET a = 1", False),
        ("SELECT f()", False),
        ("TRUNCATE t", True),
        ("ALTER TABLE t TRUNCATE PARTITION p0", True),
    ],
)
def test_a_binlog_format_is_advised_only_where_it_helps(sql: str, *, ddl: bool, batch: bool) -> None:
    error = statement_error("0-1-5", ("d.t",), logged(sql), batch=batch)
    assert f"0-1-5 may have changed rows of d.t by a statement that was logged without rows: `{sql}`." in str(error)
    assert ("binlog_format=ROW" in error.hint) is not (ddl or batch)
    assert ("Every binlog_format logs it as a statement; includeDdl=true delivers" in error.hint) is ddl
    assert "onStatementDml=warn" in error.hint
