"""The configuration file: YAML, read as text with line numbers.

PyYAML's constructor would turn `on` into True, take the last of two equal keys and forget the
line; so this walks the composed nodes itself, along the schema. Every scalar stays the text
that was written, and a kind (kinds.py) makes a value of it.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ottermq.config import layers, messages, schema
from ottermq.config.kinds import Maybe
from ottermq.config.layers import Layer, QueueLayer
from ottermq.config.schema import Config, Keys, QueueEntry
from ottermq.errors import ConfigError

NULL = "tag:yaml.org,2002:null"


def load(file: Path) -> tuple[Layer, list[QueueLayer]]:
    reader = _Reader(file)
    return reader.read(), reader.queues


class _Reader:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.queues: list[QueueLayer] = []

    def read(self) -> Layer:
        root = self._compose()
        if root is None or _is_null(root):
            return {}
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(f"{self._at(root)}: expected sections such as wal: or listen:")
        return self._section(root, Config, (), schema.hints(Config))

    def _compose(self) -> yaml.Node | None:
        try:
            text = self.file.read_bytes().decode()
            root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
            return root
        except OSError as error:
            raise ConfigError(f"{self.file}: can't read it: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.file}: not UTF-8 text at byte {error.start}") from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            problem = error.problem or error.context or "broken"
            if problem.startswith("but "):
                problem = f"{error.context}, {problem}"
            raise ConfigError(f"{self.file}{place}: not YAML: {problem}") from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            column = error.position - text.rfind("\n", 0, error.position)
            place = f"{self.file}:{line}:{column}"
            raise ConfigError(f"{place}: not YAML: {error.reason}") from None
        except RecursionError:
            raise ConfigError(f"{self.file}: not YAML we read: nested too deeply") from None

    def _at(self, node: yaml.Node) -> str:
        return f"{self.file}:{node.start_mark.line + 1}"

    def _entries(
        self, node: yaml.MappingNode, prefix: Keys
    ) -> Iterator[tuple[str, str, yaml.Node]]:
        """Each key once, with its place and its value."""
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{self._at(key)}: expected the name of a key")
            if key.value in seen:
                name = messages.dotted((*prefix, key.value))
                first = seen[key.value]
                raise ConfigError(f"{self._at(key)}: {name}: said twice, first on line {first}")
            seen[key.value] = line
            yield key.value, self._at(key), value

    def _section(
        self, node: yaml.MappingNode, section: type[Any], above: Keys, hints: dict[Keys, str]
    ) -> Layer:
        fields = {field.name: field.metadata for field in dataclasses.fields(section)}
        layer: Layer = {}
        for name, origin, value in self._entries(node, above):
            path = (*above, name)
            if name not in fields:
                raise ConfigError(messages.unknown_key(origin, path, _written(value), hints))
            if kind := fields[name].get("kind"):
                layer[path] = self._scalar(value, kind, path, origin)
            elif _is_null(value):
                pass  # all of its keys are commented out
            elif "section" not in fields[name]:
                self._queues(value, origin)
            elif isinstance(value, yaml.MappingNode):
                layer |= self._section(value, fields[name]["section"], path, hints)
            else:
                raise ConfigError(messages.bad_value(origin, path, _written(value), hints[path]))
        return layer

    def _scalar(self, node: yaml.Node, kind: Any, path: Keys, origin: str) -> layers.Said:
        # A null is a value of its own: `data:` with nothing behind it is no folder "null".
        no_null = _is_null(node) and not isinstance(kind, Maybe)
        if no_null or not isinstance(node, yaml.ScalarNode):
            raise ConfigError(messages.bad_value(origin, path, _written(node), kind.expected))
        return layers.read(kind, path, _written(node), origin)

    def _queues(self, node: yaml.Node, origin: str) -> None:
        expected = schema.QUEUES_EXPECTED
        if not isinstance(node, yaml.SequenceNode):
            raise ConfigError(messages.bad_value(origin, ("queues",), _written(node), expected))
        for index, rule in enumerate(node.value):
            above = (f"queues[{index}]",)
            if not isinstance(rule, yaml.MappingNode):
                line = messages.bad_value(self._at(rule), above, _written(rule), expected)
                raise ConfigError(line)
            hints = schema.hints(QueueEntry, above)
            layer = self._section(rule, QueueEntry, above, hints)
            match = (*above, "match")
            if match not in layer:
                line = messages.bad_value(self._at(rule), match, "null", hints[match])
                raise ConfigError(line)
            changes = {path[1:]: said for path, said in layer.items() if path != match}
            self.queues.append(QueueLayer(layer[match].text, changes))


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == NULL


def _written(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "null" if _is_null(node) else str(node.value)
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"
