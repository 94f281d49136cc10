"""Errors that this project raises. docs/api.md lists them with their exit codes."""

from replica.errors import *  # noqa: F403
from replica.errors import __all__  # noqa: F401
