"""Check of Spark on this machine: the interpreter of its Python processes, and Java.

In: the environment, as a Spark that is started here would see it. Out: findings. The interpreter is run in a separate
process, because this command may use another one. For a data source Spark uses PYSPARK_DRIVER_PYTHON, then
PYSPARK_PYTHON, then the `python3` on the PATH (tested with 4.2.1; no setting of a session changes it). If that
interpreter lacks this package, Spark reports only DATA_SOURCE_NOT_FOUND.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replica.checks.result import Report, Result
from replica.errors import InstallationError
from replica.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE: Final = "PYSPARK_PYTHON"
DRIVER_VARIABLE: Final = "PYSPARK_DRIVER_PYTHON"
"""Often the name of a notebook program, with which Spark cannot start a process of a data source."""
ANSWER_S: Final = 60.0
"""Timeout in seconds for an interpreter to import all packages on a busy machine."""
OLDEST_JAVA: Final = 17
_OURS: Final = ("pyspark_mariadb_binlog", "replica", "streaming_source")
_PROBE: Final = """
import json, sys
told = {"python": ".".join(map(str, sys.version_info[:3]))}
try:
    import pyspark
    told["spark"] = pyspark.__version__
    import pyspark_mariadb_binlog, replica.version, streaming_source
    told["package"] = replica.version.__version__
    import numba, pandas, pyarrow
    from streaming_source.driver.spark_versions import SPARK_VERSIONS, require_spark
    told["refused"] = getattr(pyspark_mariadb_binlog.DefaultSource, "reason", "")
    told["newest"] = SPARK_VERSIONS[-1].name
    require_spark(pyspark.__version__)
except ImportError as error:
    told["lacks"], told["refused"] = error.name, str(error)
except Exception as error:
    told["refused"] = str(error)
print(json.dumps(told))
"""


def spark_report(environment: Mapping[str, str]) -> Report:
    """Return the report on the environment in which a Spark would start."""
    report = Report("Spark on this machine", purpose="run in Spark")
    report.results += [*_python(environment), _java(environment)]
    if report.missing:
        one = report.missing[0]
        report.error = InstallationError(f"{one.what}.", hint=f"Fix: {one.fix}.")
    return report


def _python(environment: Mapping[str, str]) -> Iterator[Result]:
    """Check the interpreter and its packages."""
    variable = DRIVER_VARIABLE if environment.get(DRIVER_VARIABLE) else VARIABLE
    named = environment.get(variable, "")
    fix = _use_ours(variable)
    found = shutil.which(named or "python3", path=environment.get("PATH"))
    whose = f"{variable} is {named}" if named else f"{VARIABLE} is not set, so Spark starts the python3 on the PATH"
    if variable != VARIABLE:
        whose += f", which Spark takes before {VARIABLE}"
    if found is None:
        what = f"{whose}, and there is no such program" if named else f"{whose}, and there is none"
        yield Result(variable, "missing", what, fix)
        return
    if " " in found:
        what = f"{whose}, and Spark gives a path with a space to a shell unquoted"
        yield Result(variable, "missing", what, "install the package into an environment whose path has no space")
        return
    who = whose if named else f"{whose}, {found}"
    told = _asked(found, environment)
    lacking = _lacking(told)
    if lacking:
        yield Result(variable, "missing", f"{who}, {lacking}", fix if found != sys.executable else _install(found))
        return
    if told["package"] != __version__:
        what = f"{who}, which has version {told['package']} of this package, and this program is {__version__}"
        yield Result(variable, "warning", what, f"{_install(found)}, or {fix}")
    elif named:
        yield Result(variable, "ok", f"{found}: Python {told['python']}, this package {told['package']}")
    else:
        yield Result(variable, "note", f"{who}: it has this package. Another PATH may give another Python", fix)
    yield _spark(told, found)


def _spark(told: Mapping[str, Any], found: str) -> Result:
    version = str(told["spark"])
    if told["refused"]:
        return Result("spark", "missing", str(told["refused"]).partition("\n")[0].rstrip("."), _install(found))
    newest = str(told["newest"])
    if _numbers(version) > _numbers(newest):
        fix = "nothing, or the newest tested one; docs/versions.md has them"
        return Result("spark", "warning", f"{version} is newer than the newest tested version ({newest})", fix)
    return Result("spark", "ok", version)


def _asked(program: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the answers of an interpreter, or the reason why there are none under `refused`."""
    home = environment.get("SPARK_HOME", "")
    # As Spark's own launcher does, because a distribution contains its own pyspark.
    brought = [str(path) for path in sorted(Path(home, "python", "lib").glob("*.zip"))] if home else []
    path = os.pathsep.join([*brought, *filter(None, [environment.get("PYTHONPATH", "")])])
    try:
        done = subprocess.run(
            [program, "-c", _PROBE],
            env={**environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"refused": f"does not answer within {ANSWER_S:.0f} seconds"}
    except (OSError, ValueError, IndexError) as error:
        return {"refused": f"does not run as a Python: {error}"}
    return told


def _lacking(told: Mapping[str, Any]) -> str:
    """Return what an interpreter lacks, as the end of a sentence; '' for nothing."""
    if "python" not in told:
        return f"which {told['refused']}"
    lacks = told.get("lacks")
    if lacks and str(lacks).partition(".")[0] in _OURS:
        return "which lacks this package: Spark would report DATA_SOURCE_NOT_FOUND"
    if lacks:
        return f"which lacks {lacks}"
    return "" if "package" in told else f"where the package does not load: {told['refused']}"


def _use_ours(variable: str) -> str:
    """Return the commands that make Spark use the interpreter of this program."""
    export = f"export {VARIABLE}={sys.executable}"
    if variable != VARIABLE:
        export = f"unset {variable}; {export}"
    return export if importlib.util.find_spec("pyspark") else f"{_install(sys.executable)}; then {export}"


def _install(found: str) -> str:
    return f"install this package with its extra [spark] into it (README.md): {found} -m pip install …"


def _java(environment: Mapping[str, str]) -> Result:
    home = environment.get("JAVA_HOME", "")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    fix = f"install a Java runtime, {OLDEST_JAVA} or newer, as java on the PATH or in JAVA_HOME"
    if program is None:
        return Result("java", "missing", "no java is on the PATH, and JAVA_HOME is not set", fix)
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Result("java", "missing", f"{program} does not run: {error}", fix)
    version = re.search(r'version "(\d+)', done.stderr)
    if version is None:
        return Result("java", "warning", f"{program} does not report its version", fix)
    if int(version[1]) < OLDEST_JAVA:
        return Result("java", "missing", f"{program} is {version[1]}", fix)
    return Result("java", "ok", f"{version[1]}, {program}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
