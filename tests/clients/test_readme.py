"""The first message of the README, as it stands there."""

import re
import textwrap
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_first_message_of_the_readme(
    amqp_address: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    example = re.search(r"^    import pika\n(?:(?:    .*)?\n)+", README.read_text(), re.MULTILINE)
    assert example
    host, port = amqp_address
    here = f"BlockingConnection(pika.ConnectionParameters({host!r}, {port}))"
    exec(textwrap.dedent(example[0]).replace("BlockingConnection()", here), {})
    assert "b'hello'" in capsys.readouterr().out
