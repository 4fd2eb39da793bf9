"""The one line a person sees when a setting is wrong: where, which key, its value, what was
expected, and for an unknown key the nearest one that exists."""

from collections.abc import Mapping

from ottermq.config.schema import Keys

LONGEST = 60


def shown(text: str) -> str:
    """One line's worth of what was written, whatever it holds."""
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return (plain if len(plain) <= LONGEST else plain[: LONGEST - 1] + "…") or '""'


def dotted(path: Keys) -> str:
    return shown(".".join(path))


def bad_value(origin: str, path: Keys, text: str, expected: str) -> str:
    return f"{origin}: {dotted(path)} = {shown(text)}: expected {expected}"


def unknown_key(origin: str, path: Keys, text: str, hints: Mapping[Keys, str]) -> str:
    """hints: every valid key with what it expects."""
    near = nearest(path, hints)
    return (
        f"{origin}: {dotted(path)} = {shown(text)}: no such key;"
        f" the nearest is {dotted(near)}: {hints[near]}"
    )


def nearest(path: Keys, hints: Mapping[Keys, str]) -> Keys:
    """A key of the same last name wherever it lives, else the one that is written most alike."""
    import difflib  # here and not above: only a typo needs it

    alike = [hint for hint in hints if hint[-1] == path[-1]] or list(hints)
    written = ".".join(path)[:200]  # comparing takes time with the square of the length

    def likeness(hint: Keys) -> float:
        return difflib.SequenceMatcher(None, written, ".".join(hint)).ratio()

    return max(alike, key=likeness)
