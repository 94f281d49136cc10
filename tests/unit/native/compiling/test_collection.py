"""The garbage collector is held back while kernels are loaded, and no longer."""

from __future__ import annotations

import gc

import pytest

from replica.native.compiling.lower import without_collection


def test_it_is_held_back_inside_and_goes_on_behind() -> None:
    assert gc.isenabled()
    with without_collection():
        assert not gc.isenabled()
        with without_collection():
            pass
        assert not gc.isenabled()  # the outer one still holds it
    assert gc.isenabled()


def test_it_goes_on_behind_an_error() -> None:
    with pytest.raises(ValueError, match="inside"), without_collection():
        raise ValueError("inside")
    assert gc.isenabled()


def test_who_had_it_off_has_it_off_afterwards() -> None:
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
