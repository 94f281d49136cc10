"""Drive a step generator from a list: the conversation is data, so a test needs no server and no loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from replica.errors import ServerError
from replica.handshake.registration import Query, Rows, Step, Steps

if TYPE_CHECKING:
    from collections.abc import Mapping

_Result = TypeVar("_Result")


def converse(steps: Steps[_Result], answers: Mapping[str, Rows | ServerError]) -> tuple[list[str | bytes], _Result]:
    """Run to the end; the first key that a step's SQL (or hex payload) starts with answers it, else no rows."""
    said: list[str | bytes] = []
    try:
        step: Step = next(steps)
        while True:
            said.append(step.sql if isinstance(step, Query) else step.payload)
            text = step.sql if isinstance(step, Query) else step.payload.hex()
            answer = next((answer for key, answer in answers.items() if text.startswith(key)), ())
            step = steps.throw(answer) if isinstance(answer, ServerError) else steps.send(answer)
    except StopIteration as done:
        return said, done.value
