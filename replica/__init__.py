"""A MariaDB replica in Python: the protocol, a durable relay log, and row images decoded into Arrow.

The names in `__all__` and the errors in `replica.errors` are public, as docs/api.md describes them. Every other module
and name may change without notice. Names are imported on first use, because each Spark executor process needs only a
few sub-modules and pays for every import.
"""

from __future__ import annotations

from replica.lazy_imports import on_demand
from replica.version import __version__ as __version__

TYPE_CHECKING = False  # importing typing takes longer than all the rest of this file
if TYPE_CHECKING:
    from replica.live.embedded import EmbeddedReplica
    from replica.options.config import ReplicaConfig
    from replica.protocol.gtid import GtidPosition
    from replica.readers.arrow import ChangeReader, decode_files, read_relay_log

__all__ = ["ChangeReader", "EmbeddedReplica", "GtidPosition", "ReplicaConfig", "decode_files", "read_relay_log"]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "ChangeReader": "readers.arrow",
        "EmbeddedReplica": "live.embedded",
        "GtidPosition": "protocol.gtid",
        "ReplicaConfig": "options.config",
        "decode_files": "readers.arrow",
        "read_relay_log": "readers.arrow",
    },
)
