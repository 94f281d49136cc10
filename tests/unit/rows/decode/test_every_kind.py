"""Every kind through every kernel: what it writes is what the registry's plain reader gives.

A kind that was forgotten in the chain of a kernel fails here by its name. What a kernel does with a kind that nobody
knows is tried too: an error, never a value.
"""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from replica.commands.dump.outputs import json_lines, sql
from replica.commands.dump.rows.kernel_text import JSON, SQL
from replica.commands.dump.rows.kernel_values import EXACT_IN_JSON
from replica.commands.dump.rows.rows_text import RangeOrigin, RowTexts
from replica.errors import ProtocolError
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.rows.table_map import TableMapEvent
from replica.protocol.rows.values import format_time
from replica.rows.decode import slots
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.tables.layout import TableTarget
from replica.rows.types.charsets import Conversion
from replica.rows.types.entry import Json, Sql
from replica.rows.types.kinds import Kind
from replica.rows.types.types import KINDS, OutputColumn
from tests.kit.kernels import interpret_all
from tests.unit.rows.kind_samples import NAMES, SAMPLES, Sample
from tests.unit.rows.twin import Tables, check_twin, kernel_rows

if TYPE_CHECKING:
    from replica.commands.dump.rows.rows_text import Program
    from replica.rows.decode.slots import CompiledTable
    from replica.rows.tables.plan import ColumnPlan

UNHEARD_OF = 60  # a number that no kernel has a branch for
every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)


@pytest.fixture(autouse=True, params=["compiled", "interpreted"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "interpreted":
        interpret_all(monkeypatch)


class Unchanged:
    """A resolver that leaves out updates that change nothing."""

    def __init__(self, sample: Sample) -> None:
        self._target = TableTarget(sample.schema, skip_unchanged=True)

    def resolve(self, _: TableMapEvent) -> TableTarget:
        return self._target


def plan_of(sample: Sample) -> ColumnPlan:
    (event,) = (event for _, event in decode_file(sample.file()) if isinstance(event, TableMapEvent))
    return sample.plan(event)


def plain(sample: Sample) -> tuple[ColumnPlan, list[Any]]:
    """What the plain reader makes of the sample's values."""
    plan = plan_of(sample)
    return plan, [KINDS[sample.kind].binlog.read(value[plan.prefix :], plan) for value in sample.values]


def options(sample: Sample, **more: Any) -> DecodeOptions:
    policy = sample.policy
    return DecodeOptions(invalid_dates=policy.invalid_dates, geometry=policy.geometry, **more)


def tables(sample: Sample) -> Tables:
    return Tables({"d.t": sample.schema})


def test_there_is_a_sample_of_every_kind() -> None:
    assert {sample.kind for sample in SAMPLES} == set(Kind) - {Kind.OPAQUE}  # which is that of columns stepped over
    assert [plan_of(sample).kind for sample in SAMPLES] == [sample.kind for sample in SAMPLES]


@every_sample
def test_the_typed_kernel_gives_what_the_plain_reader_gives(sample: Sample) -> None:
    plan, values = plain(sample)
    decoded = check_twin(sample.file(), tables(sample), options(sample))
    given = decoded.after[0].to_pylist()
    assert decoded.after[0].type == plan.arrow
    assert [value for value in given if value is not None] == [values[0], values[1], values[1], values[1]]
    check_twin(sample.file(), tables(sample), options(sample, shape="flat"))


@every_sample
def test_the_variant_kernel_gives_what_the_plain_reader_gives(sample: Sample) -> None:
    check_twin(sample.file(), tables(sample), options(sample, shape="variant"))


@every_sample
def test_a_value_is_stepped_over_and_compared(sample: Sample) -> None:
    decoder = RangeDecoder(tables(sample), options(sample), (OutputColumn("id", *KINDS_OF_ID),))
    assert kernel_rows(sample.file(), decoder).after[0].to_pylist() == [7, 7, 7, 7]
    whole = RangeDecoder(Unchanged(sample), options(sample, shape="variant"))
    assert kernel_rows(sample.file(), whole).ops == [0, 0, 1]


KINDS_OF_ID = (KINDS[Kind.INT32].arrow, KINDS[Kind.INT32].spark)


def as_json(value: Any, plan: ColumnPlan, form: Json) -> Any:
    """A value of the plain reader as `dump --json` is to write it."""
    match form:
        case Json.NUMBER | Json.NUMBERS:
            return value
        case Json.LARGE:
            return value if abs(value) <= EXACT_IN_JSON else str(value)
        case Json.YEAR:
            return f"{value:04}"
        case Json.HEX:
            return {"hex": as_bytes(value).hex().upper()}
        case Json.TEXT | Json.UTC:
            return as_text(value, plan)


def as_text(value: Any, plan: ColumnPlan) -> str:
    if isinstance(value, timedelta):
        return format_time(value, plan.fsp)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def as_bytes(value: Any) -> bytes:
    if isinstance(value, dict):
        return int(value["srid"]).to_bytes(4, "little") + bytes(value["wkb"])
    return bytes(value)


def dumped(sample: Sample, notation: int, program: Any) -> list[bytes]:
    """The lines that the dump kernel writes, in the order of the rows."""
    texts = RowTexts(notation, program)
    decoder = RangeDecoder(tables(sample), options(sample, shape="variant"))
    batches = decoder.decode(sample.file(), checksum=True)
    return b"".join(texts.write(batch, RangeOrigin("f", 0)).data for batch in batches).splitlines()


def json_program(table: CompiledTable) -> Program:
    return json_lines.program(table, "both", unnamed=False)


# A dump asks for dates as text: their other kinds do not come to its kernel.
@pytest.mark.parametrize(
    "sample",
    [sample for sample in SAMPLES if KINDS[sample.kind].as_text is None],
    ids=[name for name, sample in zip(NAMES, SAMPLES, strict=True) if KINDS[sample.kind].as_text is None],
)
def test_the_dump_kernel_writes_what_the_plain_reader_gives(sample: Sample) -> None:
    plan, values = plain(sample)
    entry = KINDS[sample.kind]
    lines = [json.loads(line) for line in dumped(sample, JSON, json_program)]
    found = [line["after"]["c"] for line in lines[:2]]
    expected = [as_json(value, plan, entry.json) for value in values]
    assert found == expected or found == pytest.approx(expected, rel=1e-6)
    for line, value, raw in zip(dumped(sample, SQL, sql.program), values, sample.values, strict=False):
        literal = line.decode().removeprefix("INSERT INTO `d`.`t` SET `c` = ").removesuffix(", `id` = 7;")
        match entry.sql:
            case Sql.NUMBER:
                assert Decimal(literal) == Decimal(str(value)) or float(literal) == value
            case Sql.QUOTED | Sql.CHARACTERS:
                assert literal == f"'{as_text(value, plan)}'"
            case Sql.HEX:
                assert literal == f"X'{(as_bytes(value) if sample.kind != Kind.VECTOR else raw[1:]).hex().upper()}'"


@pytest.mark.parametrize("kind", [kind for kind, entry in KINDS.items() if entry.as_text is not None])
def test_dates_of_the_calendar_never_come_to_the_dump_kernel(kind: Kind) -> None:
    sample = next(sample for sample in SAMPLES if sample.kind == kind)
    with pytest.raises(ProtocolError, match="of no known kind"):
        dumped(sample, JSON, json_program)


@pytest.mark.parametrize("shape", ["envelope", "variant"])
def test_text_of_an_unknown_kind_is_an_error(monkeypatch: pytest.MonkeyPatch, shape: Any) -> None:
    monkeypatch.setattr(slots, "conversion", lambda _: Conversion(UNHEARD_OF))
    sample = next(sample for sample in SAMPLES if sample.kind == Kind.ENCODED_TEXT)
    with pytest.raises(ProtocolError, match=r"column c of d\.t has a type that the decoder does not support"):
        kernel_rows(sample.file(), RangeDecoder(tables(sample), options(sample, shape=shape), outputs(sample, shape)))


@pytest.mark.parametrize("shape", ["envelope", "variant"])
@pytest.mark.parametrize("kind", [Kind.UINT64, Kind.INT8, Kind.DATE])
def test_a_number_of_an_unknown_kind_is_an_error(monkeypatch: pytest.MonkeyPatch, kind: Kind, shape: Any) -> None:
    fill = slots.Template._parameters

    def unheard_of(self: slots.Template, record: Any, plan: ColumnPlan, policy: Any) -> None:
        fill(self, record, plan, policy)
        if plan.name == "c":
            record["kind"] = UNHEARD_OF

    monkeypatch.setattr(slots.Template, "_parameters", unheard_of)
    sample = next(sample for sample in SAMPLES if sample.kind == kind)
    with pytest.raises(ProtocolError, match=r"column c of d\.t has a type that the decoder does not support"):
        kernel_rows(sample.file(), RangeDecoder(tables(sample), options(sample, shape=shape), outputs(sample, shape)))


def outputs(sample: Sample, shape: str) -> tuple[OutputColumn, ...] | None:
    plan = plan_of(sample)
    return None if shape == "variant" else (OutputColumn("c", plan.arrow, plan.spark),)
