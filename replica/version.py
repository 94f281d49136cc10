"""The version of the package: of the wheel, and what commands and status answer."""

__version__ = "0.1.0"
