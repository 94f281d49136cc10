"""Hashes of columns on Arrow batches: those of the standard library, NULL and missing images as they were."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streaming_source.transforms.hashes import HashKey, _KeyedHash

KEY = HashKey(b"k" * 32)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_the_columns_of_both_images_are_hashed(kind: pa.DataType) -> None:
    image = pa.struct([("id", pa.int32()), ("email", kind)])
    rows = [{"id": 1, "email": "ann@x"}, None, {"id": 2, "email": None}, {"id": 3, "email": "ü"}]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b", "c"]), pa.array(rows, image).slice(1), pa.array(rows, image).slice(0, 3)],
        names=["op", "before", "after"],
    )
    made = _KeyedHash(KEY, frozenset({"email"}), ("before", "after")).of_batch(batch)
    assert made.schema == batch.schema
    ann, ue = ({"id": number, "email": KEY.hash(text.encode())} for number, text in ((1, "ann@x"), (3, "ü")))
    none = {"id": 2, "email": None}
    assert made.to_pydict() == {"op": ["a", "b", "c"], "before": [None, none, ue], "after": [ann, None, none]}


def test_bytes_need_not_be_text() -> None:
    value = pa.array([b"\xff\x00"], pa.binary()).view(pa.string())
    image = pa.StructArray.from_arrays([value], ["raw"])
    made = _KeyedHash(KEY, frozenset({"raw"}), ("after",)).of_batch(pa.RecordBatch.from_arrays([image], ["after"]))
    assert made.to_pydict() == {"after": [{"raw": KEY.hash(b"\xff\x00")}]}


def test_no_text_shows_the_key() -> None:
    assert "kkk" not in repr(_KeyedHash(KEY, frozenset({"email"}), ("after",)))
