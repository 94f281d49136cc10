"""Transcript of a user's first hour with a wheel, a MariaDB server, and none of this project's scripts.

Root in a bare Debian installs the packages that the README names, and creates a server from the distribution's
packages. Then root follows docs/tutorial.md: mirror the database into Delta tables, audit the tables, and read them
with another Spark. `python -m tools.rooms.transcript` prints docs/first-hour.md.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.fixtures.installation import PROJECT
from tests.fixtures.jars import delta_jars
from tools.rooms.room import Ran, Room, base

PACKAGES = "python3-venv openjdk-17-jre-headless mariadb-server"
CONFIGURATION = """[mariadb]
log_bin=binlog
binlog_format=ROW
binlog_row_metadata=FULL
"""
OTHER_SPARK = "4.3.0"
MIRROR = """from pyspark.sql import SparkSession
from pyspark_mariadb_binlog import audit, mirror, mirror_status

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", "JARS")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)
server = {"host": "127.0.0.1:3306", "user": "repl", "passwordFile": "/tmp/tutorial/password"}
query = mirror(
    spark,
    tables="shop.*",
    into="/tmp/lake/{database}/{table}",
    checkpointLocation="/tmp/lake/checkpoint",
    trigger={"availableNow": True},
    **server,
)
query.awaitTermination()
spark.read.format("delta").load("/tmp/lake/shop/orders").orderBy("id").show()
mirror_status(spark, into="/tmp/lake/{database}/{table}")
print(audit(spark, mirror="/tmp/lake/mirror_control", **server))
"""
LATER = """INSERT INTO shop.orders VALUES (4, 'new', 7.50);
ALTER TABLE shop.orders ADD COLUMN note VARCHAR(20) DEFAULT 'none';
UPDATE shop.orders SET state = 'paid', note = 'by card' WHERE id = 3;
"""
WIDTH = 160
INSTALL = "{}/bin/pip -q --disable-pip-version-check install"
HEAD = """# A first hour on a bare machine

This page shows what the installation, `mariadb-replica check` and a mirror print on a bare Debian 12, as root. The
machine has the wheel that `scripts/release` makes. `# 94 s` means that the command above took 94 s on two busy cores.

`python -m tools.rooms.transcript` prints it. This page omits steps 1, 3 and 4 of [the
tutorial](tutorial.md), and their repetition on Spark 4.3. It also omits passed checks, notes of
the kernel compiler, and log lines of Spark.

"""
CHATTER = re.compile(
    r"^(\[Stage | *DEPRECATION: |debconf: |WARNING: |Setting default log level|To adjust logging level|:: |"
    r"Using Spark's default|\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ |  ✓ ok |compiling the kernels )"
)
OMITTED = re.compile(r"^## (The tutorial: [134]\.|Run the same program).*?(?=^## )", re.DOTALL | re.MULTILINE)
"""Sections whose commands and output other pages show."""


class Step(NamedTuple):
    """A command, and the heading that begins with it, if one does."""

    command: str
    heading: str = ""


def steps(wheel: str, jars: str) -> list[Step]:
    """Return what is typed, in order."""
    return [
        Step(f"apt-get -qq update && apt-get -qq -y install {PACKAGES} >/tmp/apt.log", "Install packages and a server"),
        Step(_file("/etc/mysql/mariadb.conf.d/90-binlog.cnf", CONFIGURATION)),
        Step("install -d -o mysql /run/mysqld && (mariadbd-safe >/tmp/server.log 2>&1 &)"),
        Step("mariadb-admin --wait=30 ping"),
        Step("python3 -m venv /opt/spark", "Install the package with Spark"),
        Step(f"{INSTALL.format('/opt/spark')} '{wheel}[spark]'"),
        Step('export PATH=/opt/spark/bin:"$PATH" PYSPARK_PYTHON=/opt/spark/bin/python'),
        *_tutorial(),
        Step("python3 -m venv /opt/spark43", f"Run the same program on Spark {OTHER_SPARK}"),
        Step(f"{INSTALL.format('/opt/spark43')} {wheel} 'pyspark[sql]=={OTHER_SPARK}' 'pandas<3'"),
        Step("export PYSPARK_PYTHON=/opt/spark43/bin/python"),
        Step("sed 's#/tmp/tutorial/\\(orders\\|checkpoint\\)#/tmp/tutorial/43-\\1#' orders.py >orders43.py"),
        Step("/opt/spark43/bin/python orders43.py"),
        Step("export PYSPARK_PYTHON=/opt/spark/bin/python"),
        Step(_file("mirror.py", MIRROR.replace("JARS", jars)), "Mirror the database into Delta tables and audit it"),
        Step("python mirror.py"),
        Step(_sql(LATER)),
        Step("python mirror.py"),
        Step("du -shc /opt/spark /opt/spark43", "Disk space"),
    ]


def _tutorial() -> list[Step]:
    page = (PROJECT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    found: list[Step] = []
    heading = ""
    for part in re.finditer(r"^## (\d.*?)$|^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        title, language, block = part.groups()
        if title:
            heading = f"The tutorial: {title}"
        elif language == "sql":
            found.append(Step(_sql(block), heading))
        elif language == "sh":
            for line in block.splitlines():
                found.append(Step(line, heading))
                heading = ""
        elif language == "python":
            found.append(Step(_file("orders.py", block), heading))
        heading = heading if title else ""
    return found


def expected() -> list[str]:
    """Return the lines that the tutorial says come out."""
    page = (PROJECT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


def _sql(block: str) -> str:
    return f"mariadb <<'EOF'\n{block.strip()}\nEOF"


def _file(path: str, text: str) -> str:
    return f"cat >{path} <<'EOF'\n{text.strip()}\nEOF"


def first_hour(room: Room) -> Ran:
    """Go through the steps in a bare room, until one fails; what was printed is a page of Markdown."""
    top = room.folder / "up" / "root" / "hour"
    top.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
        subprocess.run([*build, "-w", folder, str(PROJECT)], check=True)
        wheel = next(Path(folder).glob("*.whl"))
        shutil.copy(wheel, top)
    jars = room.folder / "up" / "opt" / "jars"
    jars.mkdir(parents=True)
    for jar in delta_jars():
        shutil.copy(jar, jars)
    lines = [f"export COLUMNS={WIDTH}", SHOWN]
    for command, heading in steps(f"./{wheel.name}", ",".join(f"/opt/jars/{jar.name}" for jar in delta_jars())):
        lines.append(f"step {shlex.quote(command)} {shlex.quote(heading)}")
    (top / "hour.sh").write_text("\n".join([*lines, "echo '```'"]), encoding="utf-8")
    return room.run("bash hour.sh", folder="/root/hour")


SHOWN = """
step() {
  local begun=$SECONDS code
  if [ -n "$2" ]; then
    [ -z "${open:-}" ] || printf '```\\n\\n'
    printf '## %s\\n\\n```text\\n' "$2"
    open=1
  fi
  printf '$ %s\\n' "$1"
  eval "$1" 2>&1 </dev/null
  code=$?
  [ $((SECONDS - begun)) -lt 2 ] || printf '# %s s\\n' $((SECONDS - begun))
  [ $code = 0 ] || { printf '# exit code %s\\n' $code; exit 1; }
}
"""


def page(text: str) -> str:
    """Return the page of what was printed, without passed checks, log lines and omitted sections."""
    kept = [line.rstrip() for line in text.splitlines() if not CHATTER.match(line)]
    return HEAD + re.sub(r"\n{3,}", "\n\n", OMITTED.sub("", "\n".join(kept))) + "\n"


if __name__ == "__main__":
    with Room(base()) as bare:
        ran = first_hour(bare)
    print(page(ran.text), end="")
    sys.exit(ran.code)
