"""`scripts/soak daemon`, `galera`, `spark` or `mirror`: run one soak, and print a JSON summary as the last line."""

from __future__ import annotations

import argparse
import json
import random
import sys
import traceback
from typing import Any

from tests.fixtures.jars import JarsMissingError, delta_settings
from tools.proofs.soak.daemon.galera import FAULTS, soak_galera
from tools.proofs.soak.daemon.soak import soak
from tools.proofs.soak.mirror.load import TABLES
from tools.proofs.soak.mirror.soak import METADATA, soak_mirror
from tools.proofs.soak.spark.soak import soak_spark


def _daemon(arguments: argparse.Namespace) -> dict[str, Any]:
    summary = soak(arguments.version, faults=arguments.faults, seed=arguments.seed, minutes=arguments.minutes, say=True)
    if arguments.galera_faults:
        print(json.dumps(summary), flush=True)
        cluster = soak_galera(arguments.version, faults=arguments.galera_faults, seed=arguments.seed, say=True)
        summary |= {"galera": cluster}
    return summary


def _galera(arguments: argparse.Namespace) -> dict[str, Any]:
    return soak_galera(arguments.version, faults=arguments.faults, seed=arguments.seed, say=True)


def _spark(arguments: argparse.Namespace) -> dict[str, Any]:
    kinds = ("parquet", "delta") if arguments.sink == "both" else (arguments.sink,)
    try:
        delta_settings()
    except JarsMissingError as error:
        if arguments.sink == "delta":
            raise
        if arguments.sink == "both":
            print(f"*** {error}. PARQUET ALONE IS TESTED. ***", flush=True)
            kinds = ("parquet",)
    return soak_spark(arguments.version, kills=arguments.kills, seed=arguments.seed, kinds=kinds, say=True)


def _mirror(arguments: argparse.Namespace) -> dict[str, Any]:
    return soak_mirror(
        arguments.version,
        minutes=arguments.minutes,
        kills=arguments.kills,
        warehouses=arguments.warehouses,
        seed=arguments.seed,
        metadata=arguments.metadata,
        tables=tuple(arguments.tables.split(",")),
        say=True,
    )


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    found.add_argument("--seed", type=int, default=random.randrange(10**6))
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--seed", type=int, default=argparse.SUPPRESS)
    common.add_argument("--version", help="server version; 10.11 or else the newest if not given")
    kinds = found.add_subparsers(required=True)
    daemon = kinds.add_parser("daemon", parents=[common])
    daemon.set_defaults(run=_daemon)
    daemon.add_argument("--faults", type=int, default=200)
    daemon.add_argument("--minutes", type=float, default=0.0, help="stop breaking things after so long")
    daemon.add_argument("--galera-faults", type=int, default=FAULTS, help="then so many behind a cluster; 0: none")
    galera = kinds.add_parser("galera", parents=[common])
    galera.set_defaults(run=_galera)
    galera.add_argument("--faults", "--kills", type=int, default=FAULTS)
    spark = kinds.add_parser("spark", parents=[common])
    spark.set_defaults(run=_spark)
    spark.add_argument("--kills", "--faults", type=int, default=50, help="how often the driver is killed")
    spark.add_argument("--sink", choices=["parquet", "delta", "both"], default="both")
    mirror = kinds.add_parser("mirror", parents=[common])
    mirror.set_defaults(run=_mirror)
    mirror.add_argument("--minutes", type=float, default=60.0, help="how long rounds are begun")
    mirror.add_argument("--kills", type=int, default=20, help="how often the driver is killed at least")
    mirror.add_argument("--warehouses", type=int, default=1, help="of TPC-C, 600 000 rows each; 0: no TPC-C")
    mirror.add_argument("--metadata", choices=METADATA, help="binlog_row_metadata; by the seed if not given")
    mirror.add_argument("--tables", default=",".join(TABLES), help="some of %(default)s, beside sysbench's")
    return found


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    print(f"seed {arguments.seed}", flush=True)
    try:
        summary = arguments.run(arguments)
    except BaseException:  # noqa: BLE001  (whatever it was, it is the result, with its notes)
        print(f"FAILED\n{traceback.format_exc()}", flush=True)
        return 1
    print(json.dumps(summary), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
