"""Final judge of a sink: every row identity once, consistent images, and the state of the server's tables.

In: the rows of a sink, the row changes that `mariadb-binlog` prints (oracle.py), and an idle server. Out:
nothing, or an AssertionError that names the first difference. Only the last row of each key becomes a Python object,
because a run has many rows; all others stay in columns.
"""

from __future__ import annotations

import base64
import hashlib
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tools.proofs.soak.daemon.pair import DATABASE
from tools.proofs.soak.spark.app import LONG_TEXT
from tools.proofs.soak.spark.sinks import delivered

if TYPE_CHECKING:
    from tools.proofs.soak.spark.load import Load
    from tools.proofs.soak.spark.oracle import Written
    from tools.proofs.soak.spark.points import QueryFolders

ORDER = ("domain_id", "sequence_number", "ordinal")
IDENTITY = ("domain_id", "server_id", "sequence_number", "ordinal")
FIXED_TABLES = ("mark", "item", "batch", "body", "prepared", "plain")
"""Of the load: never altered."""
UNUSED_TABLES = ("counted",)
"""Made for a writer that this load does without."""
Image = dict[str, Any]


def check(query: QueryFolders, wanted: Written, load: Load) -> int:
    """Everything; gives the number of row changes."""
    rows = delivered(query, (*IDENTITY, "is_last", "op", "table"))
    check_identities(rows, wanted, query.kind)
    del rows
    images = delivered(query, (*ORDER, "op", "table", "key", "before", "after"))
    images = images.take(pc.sort_indices(images, [(name, "ascending") for name in ORDER]))
    for table in FIXED_TABLES:
        check_state(images.filter(pc.equal(images["table"], table)), table, load, query.kind)
    fixed = pc.is_in(images["table"], pa.array(FIXED_TABLES))
    check_changing_tables(images.filter(pc.invert(fixed)), wanted, load, query.kind)
    return len(images)


def check_changing_tables(rows: pa.Table, wanted: Written, load: Load, sink: str) -> None:
    """Tables that DDL makes, alters, renames, empties and drops: rows and DDL, replayed in order."""
    state: dict[str, dict[int, Image]] = {}
    steps: list[tuple[int, int, dict[str, Any] | str]] = [
        (row["sequence_number"], row["ordinal"], row) for row in rows.to_pylist()
    ]
    domains = {row["domain_id"] for _, _, row in steps if isinstance(row, dict)}
    assert len(domains) <= 1, f"these tables have one writer, in one domain, not {domains}"
    steps += [(one.gtid[2], -1, one.text) for one in wanted.definitions if one.gtid[0] in domains]
    for *_, step in sorted(steps, key=lambda step: step[:2]):
        if isinstance(step, dict):
            table = state.setdefault(step["table"], {})
            old = table.pop(step["key"], {})
            if step["after"] is not None:
                table[step["key"]] = old | image_of(step["after"])
        else:
            _define(state, step)
    for name in load.changing_tables((*FIXED_TABLES, *UNUSED_TABLES)):
        server, replayed = server_rows(name, load), state.get(name, {})
        assert server.keys() == replayed.keys(), f"{sink}: {name}: {replayed.keys()}, the server has {server.keys()}"
        for key, image in replayed.items():
            # What ALTER TABLE … ADD COLUMN … DEFAULT gave the old rows is in no row event.
            assert {"b": "x"} | image == {"b": "x"} | server[key], f"{sink}: {name}: {image}, but {server[key]}"


def _define(state: dict[str, dict[int, Image]], statement: str) -> None:
    words = statement.replace("`", "").split()
    if words[0] == "RENAME":
        state[words[4]] = state.pop(words[2])
    else:
        state.pop(words[2], None)  # TRUNCATE TABLE, DROP TABLE


def check_identities(rows: pa.Table, wanted: Written, sink: str) -> None:
    """As often as written, which is once, with its operation, table, and place at the end of the transaction or not."""
    kinds = {kind: number for number, kind in enumerate(wanted.kinds)}
    names = pc.binary_join_element_wise(rows["op"], rows["table"], " ").combine_chunks().dictionary_encode()
    codes = np.array([kinds.get(tuple(name.split(" ", 1)), -1) for name in names.dictionary.to_pylist()], np.int64)
    found = np.stack(
        [*(rows[name].to_numpy().astype(np.int64) for name in IDENTITY), codes[names.indices.to_numpy()]], axis=1
    )
    columns = (wanted.domain, wanted.server, wanted.sequence, wanted.ordinal, wanted.what)
    truth = np.stack([np.frombuffer(column, np.int64) for column in columns], axis=1)
    order = np.lexsort((found[:, 3], found[:, 2], found[:, 0]))
    found, truth = found[order], truth[np.lexsort((truth[:, 3], truth[:, 2], truth[:, 0]))]
    twice = np.flatnonzero((found[1:, :4] == found[:-1, :4]).all(axis=1))
    assert not len(twice), f"{sink}: {len(twice)} row identities are there more than once, first {found[twice[0]]}"
    if not np.array_equal(found, truth):
        missing, strange = _difference(truth, found), _difference(found, truth)
        raise AssertionError(
            f"{sink}: {len(missing)} of {len(truth)} row changes are missing {missing[:3]}, "
            f"{len(strange)} were never written {strange[:3]} (domain, server, sequence, ordinal, kind)"
        )
    ends = np.ones(len(truth), bool)
    ends[:-1] = (truth[1:, :3] != truth[:-1, :3]).any(axis=1)
    wrong = np.flatnonzero(rows["is_last"].to_numpy()[order] != ends)
    assert not len(wrong), f"{sink}: is_last of {len(wrong)} rows is wrong, first {found[wrong[0]]}"


def _difference(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> list[tuple[int, ...]]:
    """Rows of one that are not in the other."""
    return sorted(set(map(tuple, one.tolist())) - set(map(tuple, other.tolist())))


def check_state(rows: pa.Table, name: str, load: Load, sink: str) -> None:
    """Rows of one table, in order: each before image is the after image before it, the last ones are the server's."""
    rows = rows.append_column("place", pa.array(np.arange(len(rows))))
    rows = rows.take(pc.sort_indices(rows, [("key", "ascending"), ("place", "ascending")]))
    keys = rows["key"].to_numpy()
    same = keys[1:] == keys[:-1]
    previous = rows["after"].slice(0, max(0, len(rows) - 1)).filter(pa.array(same))
    before = rows["before"].slice(1).filter(pa.array(same))
    wrong = pc.invert(pc.coalesce(pc.equal(previous, before), pc.and_(pc.is_null(previous), pc.is_null(before))))
    assert not pc.any(wrong).as_py(), f"{sink}: {name}: a before image is not what was there: {_first(before, wrong)}"
    firsts = rows["before"].filter(pa.array(np.concatenate([[True], ~same])[: len(rows)]))
    assert firsts.null_count == len(firsts), f"{sink}: {name}: a row was changed before it was inserted"
    last = rows.filter(pa.array(np.concatenate([~same, [True]])[: len(rows)]))
    state = {key: text for key, text in zip(last["key"].to_pylist(), last["after"].to_pylist(), strict=True) if text}
    server = server_rows(name, load)
    assert state.keys() == server.keys(), f"{sink}: {name}: {len(state)} keys, the server has {len(server)}"
    for key, text in state.items():
        assert image_of(text) == server[key], f"{sink}: {name}: key {key} is {text}, the server has {server[key]}"


def _first(values: pa.ChunkedArray, wrong: pa.ChunkedArray) -> str:
    return str(values.filter(wrong)[0])


def image_of(text: str) -> Image:
    """JSON of an image, numbers exact."""
    values: Image = json.loads(text, parse_int=Decimal, parse_float=Decimal)
    if "at" in values:
        values["at"] = values["at"][:19]  # to the second: how many digits follow is a matter of printing
    return values


def server_rows(name: str, load: Load) -> dict[int, Image]:
    """The server's rows by key, in the form of `image_of`."""
    with load.primary.connect(init_command="SET time_zone = '+00:00'") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {DATABASE}.`{name}`")
        columns = [column[0] for column in cursor.description]
        key = columns.index("number" if name == "mark" else "id")
        return {row[key]: _as_image(dict(zip(columns, row, strict=True))) for row in cursor.fetchall()}


def _as_image(row: Image) -> Image:
    image = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            image[name] = base64.b64encode(value).decode()
        elif isinstance(value, int):
            image[name] = Decimal(value)
        elif value is None or isinstance(value, str | Decimal):
            image[name] = value
        else:
            image[name] = str(value)[:19]
    if name_of_long := next((n for n, v in image.items() if isinstance(v, str) and len(v) > LONG_TEXT // 2), None):
        plain = {n: int(v) if isinstance(v, Decimal) else v for n, v in image.items()}
        text = json.dumps(plain, separators=(",", ":"), sort_keys=True)
        if len(text) > LONG_TEXT:
            assert name_of_long == "content", f"{name_of_long}: the text of other types is Spark's to choose"
            return {"md5": hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}
    return image
