"""A failure of Spark as one line: without its Java and Python stack traces."""

import re
import sys

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

OURS = "ottermq."
NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")
PYTHONS = re.compile(r"\[PYTHON_VERSION_MISMATCH\].*")


def first_line(error: BaseException) -> str:
    text = _text(error)
    if found := NO_PROGRAM.search(text):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"the workers have no {found[1]}; set PYSPARK_PYTHON to their Python {version}"
    if found := PYTHONS.search(text):
        return found[0]
    told = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(told):  # a Python worker's traceback ends with what was raised
        if line.startswith(OURS) and ": " in line:
            return line.partition(": ")[2]
    if raised := RAISED.findall(text):
        return str(raised[-1])
    return told[0] if told else type(error).__name__


def _text(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage() or error)
    if isinstance(error, PySparkException):
        return error.getMessage() or str(error)
    return str(error)
