"""A MariaDB replica in Python: the protocol, a durable relay log, and row images decoded into Arrow.

This file imports nothing, on purpose: Spark executors import single sub-modules and pay for each import once a process.
"""

__version__ = "0.1.0"
