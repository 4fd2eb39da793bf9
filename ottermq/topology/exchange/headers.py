"""headers: by the message's headers against the binding's arguments; the key doesn't matter.

x-match says how: `all` (the default) or `any` of them, without arguments that begin with x-, or
`all-with-x` and `any-with-x`, with those. An argument without a value asks only that the header
is there.

Each message is held against every binding, and never remembered: the cost of many bindings with
thousands of arguments comes out of the message's budget before it is spent.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from ottermq.errors import PreconditionFailed
from ottermq.topology.exchange.binding import Binding, Destination
from ottermq.topology.exchange.router import Message, Router
from ottermq.topology.values import Table, binary, frozen, kind_of, shown

X_MATCH = "x-match"
A_STEP = 25  # arguments that are looked up in the time that a topic's step may take
MODES: dict[str, tuple[Callable[[Iterable[object]], bool], bool]] = {
    "all": (all, False),
    "any": (any, False),
    "all-with-x": (all, True),
    "any-with-x": (any, True),
}


@dataclass(frozen=True, slots=True)
class _Wish:
    enough: Callable[[Iterable[object]], bool]
    values: tuple[tuple[str, Hashable], ...]
    destination: Destination

    def granted_by(self, headers: dict[str, Hashable]) -> bool:
        return self.enough(
            name in headers and (value is None or headers[name] == value)
            for name, value in self.values
        )


class Headers(Router):
    by_key = False

    def __init__(self, arguments: Table) -> None:
        self._wishes: dict[Binding, _Wish] = {}
        self._values = Counter[bool]()  # of all wishes, by whether the first that fails is enough
        self._counts = Counter[bool]()

    def check(self, destination: Destination, key: str, arguments: Table) -> None:
        mode = arguments.get(X_MATCH, "all")
        if not isinstance(mode, str):
            raise PreconditionFailed(
                f"Invalid x-match field type {kind_of(mode)} (value {shown(mode)}); "
                "expected longstr"
            )
        if mode not in MODES:
            raise PreconditionFailed(
                f"Invalid x-match field value {binary(mode)}; "
                "expected all, any, all-with-x, or any-with-x"
            )

    def add(self, binding: Binding) -> None:
        enough, with_x = MODES[binding.arguments.get(X_MATCH, "all")]
        values = tuple(
            (name, None if value is None else frozen(value))
            for name, value in binding.arguments.items()
            if name != X_MATCH and (with_x or not name.startswith("x-"))
        )
        wish = self._wishes[binding] = _Wish(enough, values, binding.destination)
        self._count(wish, 1)

    def remove(self, binding: Binding) -> None:
        self._count(self._wishes.pop(binding), -1)

    def _count(self, wish: _Wish, step: int) -> None:
        self._values[wish.enough is all] += step * len(wish.values)
        self._counts[wish.enough is all] += step

    def match(self, message: Message) -> Iterable[Destination]:
        # Of a wish for all no more are looked up than the message has, and one.
        for_all = min(self._values[True], self._counts[True] * (len(message.headers) + 1))
        message.budget.spend((self._values[False] + for_all) // A_STEP)
        headers = {name: frozen(value) for name, value in message.headers.items()}
        return [wish.destination for wish in self._wishes.values() if wish.granted_by(headers)]
