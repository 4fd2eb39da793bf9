"""topic: keys are words between dots; in a binding `*` is any one word, `#` any number of them.

The bindings form a trie, one word per step:

    stock.#         root ─ stock ─ #      → {audit}
    stock.*.nyse              └─── * ─ nyse → {prices}

A message walks all paths at once. Which (node, word) pairs were seen is remembered: a binding such
as `#.#.#.#.#` can't make it walk for ever. Still, hundreds of bindings full of wildcards and a key
of a hundred words are a million steps: a binding has few `#`, and a message a budget.
"""

from collections.abc import Iterable

from ottermq.errors import PreconditionFailed
from ottermq.topology.exchange.binding import Binding, Destination
from ottermq.topology.exchange.destination_counts import DestinationCounts
from ottermq.topology.exchange.router import Budget, Message, Router
from ottermq.topology.values import Table

WILD = ("*", "#")
MOST_HASHES = 8  # in one binding


class _Node:
    __slots__ = ("next", "bound")

    def __init__(self) -> None:
        self.next: dict[str, _Node] = {}
        self.bound: DestinationCounts | None = None


class Topic(Router):
    by_key = True

    def __init__(self, arguments: Table) -> None:
        self._root = _Node()

    def check(self, destination: Destination, key: str, arguments: Table) -> None:
        if _words(key).count("#") > MOST_HASHES:
            raise PreconditionFailed(f"a binding key may hold '#' at most {MOST_HASHES} times")

    def add(self, binding: Binding) -> None:
        node = self._root
        for word in _words(binding.key):
            step = node.next.get(word)
            if step is None:
                step = node.next[word] = _Node()
            node = step
        if node.bound is None:
            node.bound = DestinationCounts()
        node.bound.add(binding.destination)

    def remove(self, binding: Binding) -> None:
        node = self._root
        path = []
        for word in _words(binding.key):
            path.append((node, word))
            node = node.next[word]
        assert node.bound is not None
        node.bound.remove(binding.destination)
        if node.bound:
            return
        node.bound = None
        for parent, word in reversed(path):  # what leads nowhere now
            child = parent.next[word]
            if child.next or child.bound:
                break
            del parent.next[word]

    def match(self, message: Message) -> Iterable[Destination]:
        found: dict[Destination, None] = {}
        for key in message.keys:
            self._walk(_words(key), found, message.budget)
        return found

    def _walk(self, words: list[str], found: dict[Destination, None], budget: Budget) -> None:
        end = len(words)
        todo = [(self._root, 0)]
        seen: set[tuple[int, int]] = set()
        while todo:
            budget.spend(1)
            node, at = todo.pop()
            if at == end and node.bound:
                found.update(dict.fromkeys(node.bound))
            steps = node.next
            if not steps:
                continue
            if at < end:
                word = words[at]
                if word in steps and word not in WILD:  # a key may hold a `*` of its own
                    todo.append((steps[word], at + 1))
                if "*" in steps:
                    todo.append((steps["*"], at + 1))
            rest = steps.get("#")
            if rest is not None and (id(rest), at) not in seen:
                for skipped in range(at, end + 1):
                    # From here on it was already tried with every tail.
                    if (id(rest), skipped) in seen:
                        break
                    seen.add((id(rest), skipped))
                    todo.append((rest, skipped))


def _words(key: str) -> list[str]:
    return key.split(".") if key else []
