"""Output of `dump --json`: one JSON object for each row change, one a line, in commit order.

{"gtid":"0-1-7","ordinal":0,"commit_time":"2026-11-21 13:00:00","file":"bin.000001","position":4711,"op":"update",
"database":"d","table":"t","before":{"id":1,"n":"x"},"after":{"id":1,"n":null}}

`position` is the start of the transaction in the file; times are UTC. A column that is not in the image is absent, and
NULL is null. Integers beyond 2^53, DECIMAL, dates and times are text as SELECT prints them with time_zone '+00:00'.
Bytes are {"hex":"00FF"}. FLOAT and DOUBLE are numbers with the fewest digits that give the same value. VECTOR is an
array. In rows of system-versioned tables, `history` says whether the row is an old version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final, Literal

from replica.dump.json_text import as_json
from replica.dump.rows.kernel_escapes import JSON
from replica.dump.rows.rows_text import RangeOrigin, RowTexts
from replica.dump.rows.templates import AFTER, BEFORE, ColumnText, Program, Side, shown_columns
from replica.row_reader.without_rows import parts_with_notice
from replica.rows.scan import records as r

if TYPE_CHECKING:
    from replica.row_reader.reading import Reading
    from replica.rows.decode.slots import CompiledTable

Image = Literal["both", "before", "after"]
OPERATIONS: Final = {r.OP_INSERT: "insert", r.OP_UPDATE: "update", r.OP_DELETE: "delete"}
_IMAGES: Final = {r.OP_INSERT: (AFTER,), r.OP_UPDATE: (BEFORE, AFTER), r.OP_DELETE: (BEFORE,)}
_NAMES: Final = {BEFORE: "before", AFTER: "after"}


def program(table: CompiledTable, image: Image, *, unnamed: bool) -> Program:
    """Return the templates of one table. `image` selects the images that are written."""
    shown = shown_columns(table, unnamed=unnamed)
    columns = [ColumnText(one, f"{as_json(one.plan.name)}:") for one in shown]
    made = Program()
    for op, word in OPERATIONS.items():
        text = f',"op":"{word}","database":{as_json(table.name.database)},"table":{as_json(table.name.table)}'
        sides = []
        for side, name in _NAMES.items():
            if image not in ("both", name):
                continue
            if side in _IMAGES[op]:
                sides.append(Side(side, f'{text},"{name}":{{', ",", "}", columns))
                text = ""
            elif sides:
                sides[-1] = sides[-1].ending(f',"{name}":null')
            else:
                text += f',"{name}":null'
        if sides:
            sides[-1] = sides[-1].ending(f"{text}}}\n")
        else:
            sides = [Side(_IMAGES[op][0], f"{text}}}\n", "", "", [])]
        made.add(len(shown), sides)
    return made


def write_json_rows(reading: Reading, out: BinaryIO, *, image: Image = "both") -> None:
    texts = RowTexts(JSON, lambda table: program(table, image, unnamed=reading.names.is_unnamed(table.table_map)))
    for part in parts_with_notice(reading):
        place = RangeOrigin(part.name, part.piece.offset)
        out.writelines(
            texts.write(batch, place, shown=shown, gtids=gtids).data for batch, shown, gtids in reading.rows(part)
        )
