"""An object of JSON, asked for its fields: what is missing or of another kind is told in a line."""

import json
from typing import Any, TypeVar

T = TypeVar("T")
_KINDS: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a number",
    dict: "an object",
    list: "a list",
}
_MISSING: Any = object()


class Wrong(Exception):
    """One line."""


class Item:
    """An object of the file, asked for its fields."""

    def __init__(self, fields: Any) -> None:
        if not isinstance(fields, dict):
            raise Wrong(f"must be an object, not {shown(fields)}")
        self.fields: dict[str, Any] = fields

    def get(self, name: str, kind: type[T], default: T = _MISSING) -> T:
        value = self.fields.get(name, _MISSING)
        if value is _MISSING or (value is None and default is not _MISSING):
            if default is _MISSING:
                raise Wrong(f"{name} is missing")
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise Wrong(f"{name} must be {_KINDS[kind]}, not {shown(value)}")
        return value

    def text(self, name: str) -> str:
        return self.get(name, str)

    def maybe_text(self, name: str) -> str | None:
        return self.get(name, str, "") if self.fields.get(name) is not None else None

    def flag(self, name: str, default: bool) -> bool:
        return self.get(name, bool, default)

    def table(self, name: str) -> dict[str, Any]:
        """Old versions wrote an empty one as an empty list, and operator policies as pairs."""
        match self.fields.get(name):
            case list(pairs) if all(_is_pair(pair) for pair in pairs):
                return dict(pairs)
        return self.get(name, dict, {})

    def tags(self) -> tuple[str, ...]:
        """A list, or a text with commas as old versions had it."""
        tags = self.fields.get("tags") or []
        if isinstance(tags, str):
            tags = tags.split(",")
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise Wrong(f"tags must be a list of texts, not {shown(tags)}")
        return tuple(tag.strip() for tag in tags if tag.strip())

    def limits(self, name: str) -> dict[str, int]:
        limits = self.table(name)
        for key, most in limits.items():
            if not isinstance(most, int) or isinstance(most, bool):
                raise Wrong(f"{name}: {key} must be a number, not {shown(most)}")
        return limits


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
