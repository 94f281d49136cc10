"""Version of the package, in the wheel and in the answers of the commands."""

__version__ = "0.2.0"
