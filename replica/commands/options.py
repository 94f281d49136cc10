"""The options of a command that talks to a primary: made from the one table, checked before the command runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from replica.config import environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.config import ReplicaConfig

_Config = TypeVar("_Config", bound="ReplicaConfig")


def flags(kind: type[ReplicaConfig]) -> tuple[str, ...]:
    """The options that are on or off: --semi-sync and --no-semi-sync."""
    return tuple(name for name, field in kind.model_fields.items() if field.annotation is bool)


def configured(kind: type[_Config]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command --config and every option of `kind`; it is called with the checked configuration."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = kind.help()

        def call(config_file: Path | None, **given: Any) -> None:
            own = {name: given.pop(name) for name in list(given) if name not in options}
            named = environment(os.environ, options) | {n: value for n, value in given.items() if value is not None}
            command(kind.from_file(config_file, named) if config_file else kind.parse(named), **own)

        call.__doc__ = command.__doc__
        call.__name__ = command.__name__
        switches = flags(kind)
        for name, text in reversed(options.items()):
            flag = f"--{name.removesuffix('_s').replace('_', '-')}"
            if name in switches:
                flag = f"{flag}/--no-{flag.removeprefix('--')}"
            extra = {"default": None} if name in switches else {"metavar": "TEXT"}
            call = click.option(flag, name, help=f"{text}.", **extra)(call)
        file = click.Path(path_type=Path, dir_okay=False)
        return click.option("--config", "config_file", type=file, help="TOML file of these options.")(call)

    return decorate
