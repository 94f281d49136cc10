"""Property tests run without a time limit per example: other work on the machine must not fail them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("protocol", deadline=None)
settings.load_profile("protocol")
