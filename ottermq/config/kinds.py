"""The kinds of settings. A kind turns a text into a value and can say what it expects.

Every layer (file, environment, flag) delivers plain text, so there is one way to read a value
wherever it comes from. A kind raises ValueError for what it can't take; the caller knows the
key and the place and makes the line that people see.
"""

import ipaddress
import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from ottermq.config import units

T_co = TypeVar("T_co", covariant=True)


class Kind(Protocol[T_co]):
    @property
    def expected(self) -> str:
        """What belongs here, to follow the word "expected" in a message."""

    def parse(self, text: str) -> T_co: ...


@dataclass(frozen=True)
class Size:
    least: str
    most: str
    example: str
    multiple_of: str = "1"

    @property
    def expected(self) -> str:
        step = "" if self.multiple_of == "1" else f" in steps of {self.multiple_of}"
        return f"a size from {self.least} to {self.most}{step}, such as {self.example}"

    def parse(self, text: str) -> int:
        size = units.parse_size(text)
        in_range = units.parse_size(self.least) <= size <= units.parse_size(self.most)
        if not in_range or size % units.parse_size(self.multiple_of):
            raise ValueError(text)
        return size


@dataclass(frozen=True)
class Time:
    least: str
    most: str
    example: str

    @property
    def expected(self) -> str:
        return f"a time from {self.least} to {self.most}, such as {self.example}"

    def parse(self, text: str) -> timedelta:
        time = units.parse_microseconds(text)
        least, most = units.parse_microseconds(self.least), units.parse_microseconds(self.most)
        if not least <= time <= most:
            raise ValueError(text)
        return timedelta(microseconds=time)


@dataclass(frozen=True)
class Count:
    least: int
    most: int

    @property
    def expected(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def parse(self, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,15}", text):
            raise ValueError(text)
        count = int(text)
        if not self.least <= count <= self.most:
            raise ValueError(text)
        return count


@dataclass(frozen=True)
class Flag:
    expected: str = "true or false"

    def parse(self, text: str) -> bool:
        # YAML 1.1 took all of these for booleans, and people still write them.
        match text.lower():
            case "true" | "yes" | "on":
                return True
            case "false" | "no" | "off":
                return False
        raise ValueError(text)


@dataclass(frozen=True)
class Choice:
    options: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"{', '.join(self.options[:-1])} or {self.options[-1]}"

    def parse(self, text: str) -> str:
        if text.lower() not in self.options:
            raise ValueError(text)
        return text.lower()


@dataclass(frozen=True)
class Address:
    """Where a server listens. Port 0: the system picks a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class Listen:
    expected: str = "HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:5672 or [::1]:5672"

    def parse(self, text: str) -> Address:
        match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]:\s]+)):([0-9]{1,5})", text)
        if match is None or int(match[3]) > 65535:
            raise ValueError(text)
        if match[1]:
            ipaddress.IPv6Address(match[1])
        return Address(match[1] or match[2], int(match[3]))


@dataclass(frozen=True)
class Folder:
    expected: str = "the path of a folder"

    def parse(self, text: str) -> Path:
        if not text or "\0" in text:
            raise ValueError(text)
        return Path(text)


@dataclass(frozen=True)
class File:
    expected: str = "the path of a file"

    def parse(self, text: str) -> Path:
        return Folder().parse(text)


@dataclass(frozen=True)
class Names:
    example: str

    @property
    def expected(self) -> str:
        return f"names with commas between them, such as {self.example}"

    def parse(self, text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if not all(names):
            raise ValueError(text)
        return names


@dataclass(frozen=True)
class Text:
    expected: str

    def parse(self, text: str) -> str:
        if not text:
            raise ValueError(text)
        return text


@dataclass(frozen=True)
class Version:
    expected: str = "three numbers with points between them, such as 4.1.0"

    def parse(self, text: str) -> str:
        if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){2}", text):
            raise ValueError(text)
        return text


@dataclass(frozen=True)
class Maybe(Generic[T_co]):
    """null, or what the inner kind takes."""

    inner: Kind[T_co]

    @property
    def expected(self) -> str:
        return f"{self.inner.expected}, or null"

    def parse(self, text: str) -> T_co | None:
        return None if text == "null" else self.inner.parse(text)
