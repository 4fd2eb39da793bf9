"""Lists: filtered by name, sorted, cut into pages, each object cut to the columns that are wanted.

    ?page=2&page_size=50&name=orders&use_regex=false&sort=messages&sort_reverse=true
    &columns=name,message_stats.publish

A long list is made in slices, so that other requests and events come in between; rows of other
pages aren't made at all, unless the order depends on them.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

import trio

from ottermq.admin.api.call import Call, Json, bad_request
from ottermq.admin.messages import Answer, Problem, as_json
from ottermq.kafka.linear_regex import BadPattern, Linear

T = TypeVar("T")
SLICE = 200  # rows
PAGE_SIZE, LARGEST_PAGE = 100, 500
Columns = dict[str, "Columns"]


class Page(NamedTuple):
    number: int
    size: int


async def listing(
    call: Call, things: Iterable[T], row: Callable[[T], Json], name: Callable[[T], str]
) -> Answer:
    """things: in the order that counts when none is asked for."""
    page, columns = _page(call), _columns(call)
    known = list(things)
    total = len(known)
    if page is not None and call.fields.get("name"):
        fits = _filter(call)
        known = [thing async for thing in in_slices(known) if fits(name(thing))]
    sort = call.fields.get("sort")
    reverse = call.flag("sort_reverse")
    if sort:
        rows = await _made(known, row)
        rows.sort(key=lambda each: _order(_at(each, sort)), reverse=reverse)
        shown = _cut(rows, page)
        return _answer(page, await _encoded(shown, lambda each: each, columns), len(rows), total)
    if reverse:
        known.reverse()
    encoded = await _encoded(_cut(known, page), row, columns)
    return _answer(page, encoded, len(known), total)


def shaped(call: Call, row: Json) -> Json:
    """One object, cut to the columns that are wanted."""
    return _picked(row, _columns(call))


async def in_slices(things: Iterable[T]) -> AsyncIterator[T]:
    """Any of them may be gone by the time it comes."""
    for at, thing in enumerate(list(things), 1):
        yield thing
        if not at % SLICE:
            await trio.lowlevel.checkpoint()


async def _made(things: Sequence[T], row: Callable[[T], Json]) -> list[Json]:
    return [row(thing) async for thing in in_slices(things)]


async def _encoded(
    things: Sequence[T], row: Callable[[T], Json], columns: Columns | None
) -> list[bytes]:
    return [as_json(_picked(row(thing), columns)) async for thing in in_slices(things)]


def _answer(page: Page | None, rows: list[bytes], filtered: int, total: int) -> Answer:
    items = b"[" + b",".join(rows) + b"]"
    if page is None:
        return Answer(body=items)
    counts = as_json(
        {
            "filtered_count": filtered,
            "item_count": len(rows),
            "page": page.number,
            "page_count": -(-filtered // page.size),
            "page_size": page.size,
            "total_count": total,
        }
    )
    return Answer(body=counts[:-1] + b',"items":' + items + b"}")


def _cut(things: Sequence[T], page: Page | None) -> Sequence[T]:
    if page is None:
        return things
    first = (page.number - 1) * page.size
    if first >= len(things) and page.number > 1:
        where = f"page: {page.number} page size: {page.size}, len: {len(things)}"
        reason = f"Page out of range, {where}"
        raise Problem(HTTPStatus.BAD_REQUEST, reason, error="page_out_of_range")
    return things[first : first + page.size]


def _page(call: Call) -> Page | None:
    """None: all of it is wanted."""
    if "page" not in call.fields:
        return None
    number = _number(call.fields["page"])
    size = _number(call.fields.get("page_size") or str(PAGE_SIZE))
    if number < 1 or not 1 <= size <= LARGEST_PAGE:
        reason = f"Invalid pagination parameters: page number {number}, page size {size}"
        raise Problem(HTTPStatus.BAD_REQUEST, reason, error="invalid_pagination_parameters")
    return Page(number, size)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise bad_request("Pagination parameters are invalid")
    return int(text)


def _filter(call: Call) -> Callable[[str], bool]:
    """By a part of the name, or by a regular expression; case doesn't count."""
    wanted = call.fields["name"]
    if not call.flag("use_regex"):
        part = wanted.lower()
        return lambda name: part in name.lower()
    try:
        # Ours takes no longer than the name is long, whatever the pattern.
        pattern = Linear(f"(?:.|\\n)*(?:{_lower(wanted)})(?:.|\\n)*")
    except BadPattern:
        raise bad_request("Pagination parameters are invalid") from None
    return lambda name: pattern.matches(name.lower())


def _lower(pattern: str) -> str:
    return re.sub(r"\\.|[A-Z]", lambda m: m[0] if m[0][0] == "\\" else m[0].lower(), pattern)


def _columns(call: Call) -> Columns | None:
    wanted = call.fields.get("columns")
    if not wanted:
        return None
    tree: Columns = {}
    for path in wanted.split(","):
        here = tree
        for step in path.split("."):
            here = here.setdefault(step, {})
    return tree


def _picked(row: Json, columns: Columns | None) -> Json:
    if not columns:
        return row
    found = {}
    for name, below in columns.items():
        if name in row:
            value = row[name]
            found[name] = _picked(value, below) if below and isinstance(value, dict) else value
    return found


def _at(row: Json, path: str) -> Any:
    value: Any = row
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _order(value: Any) -> tuple[int, Any]:
    """Numbers, then texts; what is neither comes first."""
    if isinstance(value, int | float):
        return 1, value
    if isinstance(value, str):
        return 2, value
    return 0, 0
