"""Every line that the broker's source can log, and every reason for which a connection ends.

Found in the source: by its syntax in Python, by the calls of om_conn_break in C. An event must be
a constant there: a line that nobody can search for is an error here.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ottermq.net import close_reasons
from ottermq.storage.store import REPORTS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ottermq", "wal", "amqp", "cli")
LEVELS = {"DEBUG", "INFO", "WARNING", "ERROR"}
# The parameters in front of an event's fields, by the function that logs it.
CALLS = {"debug": 1, "info": 1, "warning": 1, "trace": 2, "failure": 2, "log": 2}
# What these pass on is looked at where they are called.
PASSING = ("ottermq/eventlog.py", "ottermq/contained.py", "ottermq/auditlog.py")
ACTS = ("Act", "audit", "record")  # each a line `audit`, sooner or later
AUDIT = {"act", "user", "peer", "what", "result"}


@dataclass
class Call:
    """One place that logs an event."""

    place: str
    event: str
    levels: set[str]  # empty: known only when it runs
    fields: set[str]
    is_open: bool  # there may be more fields: **fields


@dataclass
class Event:
    levels: set[str] = field(default_factory=set)
    always: set[str] | None = None  # the fields of each of its lines
    sometimes: set[str] = field(default_factory=set)
    is_open: bool = False
    any_level: bool = False

    def add(self, call: Call) -> None:
        self.levels |= call.levels
        self.any_level |= not call.levels
        self.sometimes |= call.fields
        self.always = call.fields if self.always is None else self.always & call.fields
        self.is_open |= call.is_open


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def events() -> dict[str, Event]:
    found: dict[str, Event] = {}
    for path in sources():
        for call in calls(path):
            found.setdefault(call.event, Event()).add(call)
    return found


def calls(path: Path) -> Iterator[Call]:
    place = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        module, _, function = name.rpartition(".")
        if function in ACTS and ("audit" in name or name in ("Act", "acts.record", "self.record")):
            fields = {word.arg for word in node.keywords if word.arg is not None}
            yield Call(f"{place}:{node.lineno}", "audit", {"INFO"}, AUDIT | fields, is_open=True)
        elif name == "contained" and place not in PASSING:
            yield logged(place, node, node.args[0], {"ERROR"}, {"error"})
        elif module == "eventlog" and function in CALLS and place not in PASSING:
            yield from of_eventlog(place, node, function)


def of_eventlog(place: str, node: ast.Call, function: str) -> Iterator[Call]:
    if place == "ottermq/storage/store.py" and function == "log":  # whatever the store reports
        for level, text in REPORTS.values():
            yield Call(place, text, {level_name(level)}, {"text"}, is_open=True)
        return
    event = node.args[1] if function == "log" else node.args[0]
    levels = {"trace": {"DEBUG"}, "failure": {"ERROR"}}.get(function, {function.upper()})
    if function == "log":
        levels = {part.attr for part in ast.walk(node.args[0]) if isinstance(part, ast.Attribute)}
        levels &= LEVELS
    more = {"error"} if function in ("trace", "failure") else set()
    yield logged(place, node, event, levels, more)


def logged(place: str, node: ast.Call, event: ast.expr, levels: set[str], more: set[str]) -> Call:
    where = f"{place}:{node.lineno}"
    assert isinstance(event, ast.Constant) and isinstance(event.value, str), (
        f"{where}: the event is {ast.unparse(event)}, which nobody can search for"
    )
    fields = {word.arg for word in node.keywords if word.arg is not None}
    is_open = any(word.arg is None for word in node.keywords)
    return Call(where, event.value, levels, fields | more, is_open)


def level_name(level: int) -> str:
    return {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR"}[level]


# -- audit acts

ACT = re.compile(r"[a-z_]+\.[a-z-]+")
# Functions that have an act's name as an argument: its place, and whose calls these are.
NAMERS = {"Act": 0, "audit": 0, "record": 0, "act": 0, "_audit": 1}
# Where a name is handed on; the calls that hand it over are looked at.
HANDED_ON = {"act", "name", "self.name", "page.name"}


def acts() -> set[str]:
    return {act for path in sources() for act in acts_of(path)}


def acts_of(path: Path) -> Iterator[str]:
    place = path.relative_to(ROOT).as_posix()
    if place == "ottermq/auditlog.py" or place.startswith("ottermq/audit/"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "act":
            yield from filter(ACT.fullmatch, literals(node.value))
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func).rpartition(".")[2]
        if function in NAMERS and len(node.args) > NAMERS[function]:
            name = node.args[NAMERS[function]]
            if isinstance(name, ast.Constant) and ACT.fullmatch(str(name.value)):
                yield str(name.value)
            elif function in ACTS and "recorder" not in ast.unparse(node.func):
                assert ast.unparse(name) in HANDED_ON | {"caller"}, (
                    f"{place}:{node.lineno}: the act is {ast.unparse(name)},"
                    " which nobody can search for"
                )


def literals(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


# -- why connections end

ENDINGS = {"connection closed", "connection closing", "connection rejected"}
ENDERS = {"_end", "cut_off"}  # functions that take the reason as their second argument


def check_ends(path: Path) -> None:
    """A connection's end is a constant of close_reasons, which the table has."""
    place = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text())):
        said: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            is_ending = ast.unparse(node.targets[0]).endswith(".ending")
            said = [node.value] if is_ending else []
        elif isinstance(node, ast.Call):
            if any(isinstance(arg, ast.Constant) and arg.value in ENDINGS for arg in node.args):
                said = [word.value for word in node.keywords if word.arg == "reason"]
            elif ast.unparse(node.func).rpartition(".")[2] in ENDERS:
                said = node.args[1:2]
                said += [word.value for word in node.keywords if word.arg == "reason"]
        for reason in said:
            assert not any(literals(reason)), (
                f"{place}:{reason.lineno}: {ast.unparse(reason)} is no constant of close_reasons"
            )


BREAK = re.compile(r"\bom_conn_break\(([^;]*)\);", re.DOTALL)
LITERAL = re.compile(r'"([^"\n]+)"')


def reasons() -> set[str]:
    """Of both halves."""
    ours = {
        value
        for name, value in vars(close_reasons).items()
        if name.isupper() and isinstance(value, str)
    }
    return ours | {reason for path in (ROOT / "csrc").rglob("*.c") for reason in of_c(path)}


def of_c(path: Path) -> Iterator[str]:
    text = path.read_text()
    for call in BREAK.finditer(text):
        if not call[1].startswith("om_conn *"):  # the function itself
            yield from told_by(call[1].partition(",")[2].strip(), text, f"{path}: {call[0]}")


def told_by(reason: str, text: str, where: str) -> list[str]:
    """Literals, macros, or a variable of the same file that was given those."""
    found = LITERAL.findall(reason)
    found += [told for name, told in macros().items() if re.search(rf"\b{name}\b", reason)]
    for given in re.findall(rf"\b{reason} = ([^;]*);", text) if reason.isidentifier() else ():
        found += told_by(given, text, where)
    assert found, f"{where}: why does the connection end?"
    return found


@cache
def macros() -> dict[str, str]:
    headers = "".join(path.read_text() for path in (ROOT / "csrc").rglob("*.[ch]"))
    return dict(re.findall(r'^#define (\w+) "([^"\n]+)"', headers, re.MULTILINE))
