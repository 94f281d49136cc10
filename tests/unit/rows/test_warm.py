from __future__ import annotations

from replica.rows.decode import DecodeOptions, RangeDecoder, count_rows
from replica.rows.warm import KERNELS, warm_kernels
from tests.unit.rows.test_decode import OUTPUT, WANTED, transactions


def test_warm_kernels_are_those_that_decoding_calls() -> None:
    warm_kernels()
    compiled = [len(kernel.signatures) for kernel, _ in KERNELS]
    data = bytes(transactions())
    for shape, output in (("envelope", OUTPUT), ("variant", None)):
        assert list(RangeDecoder(WANTED, DecodeOptions(shape=shape), output).decode(data, checksum=True))  # type: ignore[arg-type]
    count_rows(data, WANTED, checksum=True)
    assert [len(kernel.signatures) for kernel, _ in KERNELS] == compiled == [1] * len(KERNELS)
