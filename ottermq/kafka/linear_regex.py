"""Regular expressions from untrusted clients: their time grows with the text, not faster.

    pattern = Linear("orders-[0-9]+|audit-.*")      # BadPattern: it can't be
    pattern.matches("orders-17")                    # the whole text

Python's own matcher tries one way after the other, and for (a+)+ there are more ways than anybody
can wait for. This one goes through the text once and keeps the set of all places where it may be,
as RE2 does; like RE2 it knows neither back references nor lookaround. patterns.py has the
characters that a class or an escape stands for.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from operator import eq

from ottermq import patterns

LONGEST = 256  # characters of a pattern
MOST_STEPS = 300  # counted repeats are written out
DEEPEST = 20  # groups within groups
MOST_MOVES = 512  # that are remembered: some megabytes at most
ACCEPT = 0

REPEAT = re.compile(r"(?:([*+?])|\{([0-9]{1,3})(?:(,)([0-9]{0,3}))?\})\??")
CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]", re.DOTALL)
ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|[dDwWsStnrfva]|[^0-9a-zA-Z])", re.DOTALL)
GROUP = re.compile(r"\((?:\?(?::|P?<[A-Za-z_]\w{0,31}>)|(?!\?))")
ANCHORS = {"^": "^", "\\A": "^", "$": "$", "\\z": "$"}
TIMES = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class BadPattern(ValueError):
    pass


@dataclass(frozen=True)
class One:
    """A character, if the test says so."""

    test: Callable[[str], object]


@dataclass(frozen=True)
class Anchor:
    where: str  # ^ or $


@dataclass(frozen=True)
class Sequence:
    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Choice:
    branches: tuple["Node", ...]


@dataclass(frozen=True)
class Repeat:
    node: "Node"
    least: int
    most: int | None


Node = One | Anchor | Sequence | Choice | Repeat


class Parser:
    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise BadPattern(f"more than {LONGEST} characters")
        self.text = text
        self.at = 0
        self.depth = 0

    def whole(self) -> Node:
        found = self._choice()
        if self.at < len(self.text):
            raise BadPattern("a ) without its (")
        return found

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _choice(self) -> Node:
        branches = [self._sequence()]
        while self._next() == "|":
            self.at += 1
            branches.append(self._sequence())
        return Choice(tuple(branches)) if len(branches) > 1 else branches[0]

    def _sequence(self) -> Node:
        parts = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated())
        return Sequence(tuple(parts))

    def _repeated(self) -> Node:
        node = self._atom()
        while found := REPEAT.match(self.text, self.at):
            self.at = found.end()
            sign, least, comma, most = found.groups()
            if sign:
                node = Repeat(node, *TIMES[sign])
                continue
            low = int(least)
            high = low if not comma else int(most) if most else None
            if high is not None and high < low:
                raise BadPattern(f"{{{low},{high}}}")
            node = Repeat(node, low, high)
        return node

    def _atom(self) -> Node:
        start = self._next()
        for anchor, where in ANCHORS.items():
            if self.text.startswith(anchor, self.at):
                self.at += len(anchor)
                return Anchor(where)
        if start == "(":
            return self._group()
        if start in ("[", "\\"):
            found = (CLASS if start == "[" else ESCAPE).match(self.text, self.at)
            if found is None:
                raise BadPattern(f"what does {self.text[self.at : self.at + 2]} mean?")
            self.at = found.end()
            try:
                return One(patterns.translated(found[0]).fullmatch)
            except patterns.BAD_PATTERN as error:
                raise BadPattern(str(error)) from None
        if start in ("*", "+", "?"):
            raise BadPattern(f"nothing before {start}")
        self.at += 1
        return One(_any if start == "." else partial(eq, start))

    def _group(self) -> Node:
        opened = GROUP.match(self.text, self.at)
        if opened is None:
            raise BadPattern("a kind of group that isn't known")
        self.at = opened.end()
        self.depth += 1
        if self.depth > DEEPEST:
            raise BadPattern(f"more than {DEEPEST} groups within each other")
        found = self._choice()
        if self._next() != ")":
            raise BadPattern("a ( without its )")
        self.at += 1
        self.depth -= 1
        return found


def _any(char: str) -> bool:
    return char != "\n"


@dataclass
class Step:
    """With a test: that character, and on. Without: on at once, or only at an anchor."""

    test: Callable[[str], object] | None
    next: tuple[int, ...]
    anchor: str = ""


Places = frozenset[int]


class Linear:
    def __init__(self, text: str) -> None:
        self._steps = [Step(None, ())]  # ACCEPT
        self._built = 0
        self._moves: dict[tuple[Places, str], Places] = {}
        self._first = self._build(Parser(text).whole(), ACCEPT)

    def matches(self, text: str) -> bool:
        now = self._reach([self._first], "^" if text else "^$")
        for char in text:
            now = self._move(now, char)
            if not now:
                return False
        return ACCEPT in self._reach(now, "$")

    def _move(self, now: Places, char: str) -> Places:
        found = self._moves.get((now, char))
        if found is None:
            on: list[int] = []
            for place in now:
                step = self._steps[place]
                if step.test is not None and step.test(char):
                    on += step.next
            if len(self._moves) >= MOST_MOVES:
                self._moves.clear()
            found = self._moves[now, char] = self._reach(on, "")
        return found

    def _reach(self, places: Iterable[int], anchors: str) -> Places:
        """And all that can be reached from them without a character."""
        found: set[int] = set()
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                step = self._steps[place]
                if step.test is None and (not step.anchor or step.anchor in anchors):
                    waiting += step.next
        return frozenset(found)

    def _add(self, step: Step) -> int:
        self._steps.append(step)
        return len(self._steps) - 1

    def _build(self, node: Node, then: int) -> int:
        """The place where it begins, if what follows begins at `then`."""
        self._built += 1  # also of what has no steps of its own
        if self._built > MOST_STEPS:
            raise BadPattern("too large once its repeats are written out")
        match node:
            case One(test):
                return self._add(Step(test, (then,)))
            case Anchor(where):
                return self._add(Step(None, (then,), where))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case Choice(branches):
                return self._add(Step(None, tuple(self._build(each, then) for each in branches)))
            case Repeat(inner, least, most):
                return self._build_repeat(inner, least, most, then)

    def _build_repeat(self, node: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            start = self._add(Step(None, ()))
            self._steps[start].next = (self._build(node, start), then)
        else:
            start = then
            for _ in range(most - least):
                start = self._add(Step(None, (self._build(node, start), then)))
        for _ in range(least):
            start = self._build(node, start)
        return start
