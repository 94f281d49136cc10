"""What the columns of a target that is read again are called in it."""

from __future__ import annotations

from streaming_source.mirroring.modes.mode import own_columns
from streaming_source.mirroring.reading.resnapshot import names_in_target
from streaming_source.transforms.transformed_images import TargetColumn


def column(name: str, source: str = "") -> TargetColumn:
    return TargetColumn(name, "INT", nullable=True, comment="", source=source)


def test_columns_of_the_table_are_known_by_their_old_names_and_those_of_the_mode_stay() -> None:
    columns = [column("id"), column("title"), column("new"), column("seen", "at"), *own_columns("history")]
    names = {"id": "id", "title": "name", "at": "at"}
    assert names_in_target(names, columns, own_columns("history")) == {
        "id": "id",
        "title": "name",
        "new": None,
        "seen": "seen",
    }
