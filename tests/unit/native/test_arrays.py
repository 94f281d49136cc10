"""Memory that is used again: by no one else while any view of it is left, and by no one once it is closed."""

from __future__ import annotations

import gc
import threading

from replica.native.arrays import MOST_FREE, SMALLEST, ArrayMemory, address


def test_memory_is_used_again_when_the_last_view_is_gone() -> None:
    memory = ArrayMemory()
    array = memory.take(2 * SMALLEST)
    place = address(array)
    part = array[5:10][1:].view("V4")
    data = memoryview(array[SMALLEST:])
    del array
    gc.collect()
    other = memory.take(SMALLEST)
    assert not place <= address(other) < place + 2 * SMALLEST
    del part
    assert address(memory.take(SMALLEST)) != place
    del data
    assert address(memory.take(SMALLEST + 1)) == place


def test_an_array_has_its_size_and_what_is_too_small_is_given_up() -> None:
    memory = ArrayMemory()
    for size in (0, 1, SMALLEST - 1, SMALLEST, 3 * SMALLEST, SMALLEST):
        array = memory.take(size)
        array[:] = 7
        assert (len(array), array.flags.writeable) == (size, True)


def test_threads_never_share_memory() -> None:
    memory = ArrayMemory()
    wrong = []

    def use(number: int) -> None:
        for _ in range(200):
            array = memory.take(SMALLEST)
            array[::4096] = number
            if (array[::4096] != number).any():
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(2 * MOST_FREE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_closed_one_keeps_nothing() -> None:
    memory = ArrayMemory()
    held = [memory.take(SMALLEST) for _ in range(2)]
    del held[0]
    assert len(memory._free) == 1
    memory.close()
    held.clear()
    assert len(memory._free) == 0
    assert len(memory.take(SMALLEST)) == SMALLEST
