"""Regular expressions of permissions and policies.

RabbitMQ takes PCRE, we take Python's. The expressions that people write are the same in both, but
for POSIX classes and \\z, which are translated.
"""

import re
import warnings
from functools import lru_cache

BAD_PATTERN = (re.error, OverflowError, RecursionError)
POSIX = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "space": r"\s",
    "upper": "A-Z",
    "word": r"\w",
    "xdigit": "0-9a-fA-F",
}


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """BAD_PATTERN: it can't be."""
    return translated(pattern)


def translated(pattern: str) -> re.Pattern[str]:
    """The same, not remembered: untrusted patterns mustn't push out those in use."""
    with warnings.catch_warnings():
        # "Possible nested set": Python's plans for [[, which means nothing to PCRE.
        warnings.simplefilter("ignore", FutureWarning)
        # Names are bytes to RabbitMQ: \w, \d and \s are ASCII's.
        return re.compile(_from_pcre(pattern), re.ASCII)


def _from_pcre(pattern: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[2]:
            return POSIX.get(match[2], match[0])
        return {"\\z": r"\Z", "\\Z": r"(?=\n?\Z)"}.get(match[0], match[0])

    return re.sub(r"\\(.)|\[:(\w+):\]", replaced, pattern, flags=re.DOTALL)
