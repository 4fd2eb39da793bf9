"""The configuration: what is written becomes what was meant, or one line says why not."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottermq.config import Address, Config, load, schema, units, yamlfile
from ottermq.config.kinds import Listen, Maybe
from ottermq.errors import ConfigError
from tests.examples import examples

MIB = 1024 * 1024
ROOT = Path(__file__).parent.parent


def written(folder: Path, text: str) -> Path:
    file = folder / "broker.yaml"
    file.write_text(text)
    return file


def refusal(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[tuple[str, ...], tuple[str, str | None]] | None = None,
) -> str:
    with pytest.raises(ConfigError) as caught:
        load(file, environ, flags)
    line = str(caught.value)
    assert "\n" not in line
    return line


# -- units


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1B", 1),
        ("512KB", 512_000),
        ("512KiB", 524_288),
        ("64MiB", 64 * MIB),
        ("64 MiB", 64 * MIB),
        ("64mib", 64 * MIB),
        ("1GiB", 1024 * MIB),
        ("2TB", 2_000_000_000_000),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MiB", "-1", "1.5GiB", "64M", "64 parsecs", "1e3", "٣", "9" * 5000, "1 2MiB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("0", 0),
        ("0ms", 0),
        ("250us", 250),
        ("10ms", 10_000),
        ("30s", 30_000_000),
        ("90m", 5_400_000_000),
        ("7d", 604_800_000_000),
        ("1h30m", 5_400_000_000),
        ("1D 2H", 93_600_000_000),
        ("1m1ms", 60_001_000),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, microseconds: int) -> None:
    assert units.parse_microseconds(text) == microseconds


@pytest.mark.parametrize("text", ["", "30", "ms", "-1s", "1.5s", "30m1h", "1s1s", "1w", "1 0s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        units.parse_microseconds(text)


@given(st.integers(0, 10**15))
def test_a_size_written_by_us_reads_back_the_same(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@given(st.sampled_from(sorted(units.SIZES)), st.integers(1, 999))
def test_a_round_size_is_written_short(unit: str, count: int) -> None:
    assert len(units.format_size(count * units.SIZES[unit])) <= len(f"{count}{unit}")


@given(st.timedeltas(timedelta(0), timedelta(days=36500)))
def test_a_time_written_by_us_reads_back_the_same(time: timedelta) -> None:
    again = units.parse_microseconds(units.format_time(time))
    assert timedelta(microseconds=again) == time


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_a_value_error(text: str) -> None:
    for parse in (units.parse_size, units.parse_microseconds):
        try:
            assert parse(text) >= 0
        except ValueError:
            pass


@given(st.one_of(st.ip_addresses().map(str), st.from_regex(r"[a-z0-9.-]+", fullmatch=True)))
def test_an_address_written_by_us_reads_back_the_same(host: str) -> None:
    if "%" not in host:  # an IPv6 zone
        assert Listen().parse(str(Address(host, 5672))) == Address(host, 5672)


# -- the file that lies in the repository


def test_config_yaml_holds_every_key_there_is() -> None:
    layer, queues = yamlfile.load(ROOT / "config.yaml")
    assert list(layer) == [path for path, _ in schema.keys(Config)]
    assert queues == []
    assert "queues" in yaml.safe_load((ROOT / "config.yaml").read_text())


def test_config_yaml_says_the_built_in_defaults() -> None:
    layer, _ = yamlfile.load(ROOT / "config.yaml")
    for path, said in layer.items():
        value: Any = Config()
        for name in path:
            value = getattr(value, name)
        assert said.value == value, f"{said.origin}: {'.'.join(path)} is {value} by default"
    assert load(ROOT / "config.yaml") == load() == Config()


def test_the_example_in_config_yaml_is_a_valid_one(tmp_path: Path) -> None:
    text = (ROOT / "config.yaml").read_text()
    example = text[text.index("#   queues:") : text.index("\nqueues: []")].replace("#   ", "")
    config = load(written(tmp_path, example))
    assert config.for_queue("audit.logins").retention.max_age == timedelta(days=365)
    assert config.for_queue("cpu.metrics").flush_mode == "async"


# -- layers


def test_a_flag_goes_over_a_variable_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, "listen: {amqp: 'file:1', kafka: 'file:2', admin: 'file:3'}")
    environ = {"OTTERMQ_LISTEN__AMQP": "env:1", "OTTERMQ_LISTEN__KAFKA": "env:2", "PATH": "/bin"}
    flags = {("listen", "amqp"): ("--amqp", "flag:1"), ("data",): ("--data", None)}
    config = load(file, environ, flags)
    listen = config.listen
    assert [str(listen.amqp), str(listen.kafka), str(listen.admin)] == ["flag:1", "env:2", "file:3"]
    assert config.data == Config().data


def test_every_key_can_be_set_by_a_variable() -> None:
    for path, _ in schema.keys(Config):
        name = "OTTERMQ_" + "__".join(path).upper()
        line = refusal(environ={name: ""})
        assert line.startswith(f'{name}: {".".join(path)} = "": expected ')


def test_a_variable_can_take_a_limit_away() -> None:
    config = load(environ={"OTTERMQ_WAL__SEGMENT_MAX_AGE": "null"})
    assert config.wal.segment_max_age is None


def test_variables_of_our_tests_and_of_kubernetes_are_no_settings() -> None:
    names = ["SOAK", "SHIM_ROOT", "SERVICE_HOST", "SERVICE_PORT_AMQP", "PORT", "PORT_5672_TCP_ADDR"]
    assert load(environ={f"OTTERMQ_{name}": "x" for name in names}) == Config()


def test_a_section_with_its_keys_commented_out_is_as_if_left_out(tmp_path: Path) -> None:
    assert load(written(tmp_path, "wal:\n  retention:\n    # max_age: 7d\nqueues:\n")) == Config()


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}"])
def test_an_empty_file_changes_nothing(tmp_path: Path, text: str) -> None:
    assert load(written(tmp_path, text)) == Config()


@pytest.mark.parametrize("word", ["on", "off", "auto"])
def test_on_and_off_are_words_where_a_choice_is_asked(tmp_path: Path, word: str) -> None:
    assert load(written(tmp_path, f"wal: {{direct_io: {word}}}")).wal.direct_io == word


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("off", False), ("True", True)])
def test_a_flag_understands_the_words_yaml_once_did(tmp_path: Path, word: str, value: bool) -> None:
    assert load(written(tmp_path, f"wal: {{pre_allocate: {word}}}")).wal.pre_allocate is value


# -- rules for queues


RULES = """
wal:
  segment_size: 32MiB
  retention: {max_size: 10GiB}
queues:
  - match: audit.*
    flush_mode: immediate
    retention: {keep_settled: true}
  - match: "*.small"
    segment_size: 64KiB
    segment_max_age: null
"""


def test_a_queue_goes_by_the_first_rule_that_matches_its_name(tmp_path: Path) -> None:
    config = load(written(tmp_path, RULES))
    assert config.for_queue("audit.small").flush_mode == "immediate"
    assert config.for_queue("audit.small").segment_size == 32 * MIB
    assert config.for_queue("jobs.small").segment_size == 64 * 1024
    assert config.for_queue("jobs.small").segment_max_age is None


def test_what_a_rule_leaves_out_is_the_brokers_own(tmp_path: Path) -> None:
    config = load(written(tmp_path, RULES), {"OTTERMQ_WAL__RETENTION__MAX_SIZE": "20GiB"})
    for name in ("audit.logins", "jobs"):
        assert config.for_queue(name).retention.max_size == 20 * 1024 * MIB
    assert config.for_queue("audit.logins").retention.keep_settled
    assert not config.for_queue("jobs").retention.keep_settled


def test_a_queues_pattern_minds_case(tmp_path: Path) -> None:
    config = load(written(tmp_path, RULES))
    assert config.for_queue("AUDIT.x").flush_mode == "batch"


def test_one_rule_can_be_written_once_and_named_twice(tmp_path: Path) -> None:
    file = written(tmp_path, "queues: [&r {match: a, flush_mode: async}, *r]")
    assert [rule.match for rule in load(file).queues] == ["a", "a"]


# -- refusals


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "wal:\n  segmnt_size: 64MiB\n",
            "2: wal.segmnt_size = 64MiB: no such key; the nearest is wal.segment_size:"
            " a size from 64KiB to 1GiB in steps of 4KiB, such as 64MiB",
        ),
        (
            "segment_size: 64MiB",
            "1: segment_size = 64MiB: no such key; the nearest is wal.segment_size:"
            " a size from 64KiB to 1GiB in steps of 4KiB, such as 64MiB",
        ),
        (
            "wall: {flush_mode: batch}",
            "1: wall = a mapping: no such key; the nearest is wal:"
            " a section with keys such as segment_size",
        ),
        (
            "log:\n  level: loud",
            "2: log.level = loud: expected debug, info, warning or error",
        ),
        (
            "\n\nwal:\n  page_cache: {open_files: many}",
            "4: wal.page_cache.open_files = many: expected a whole number from 16 to 1000000",
        ),
        (
            "wal: {segment_size: 63KiB}",
            "1: wal.segment_size = 63KiB: expected a size from 64KiB to 1GiB"
            " in steps of 4KiB, such as 64MiB",
        ),
        (
            "wal: {segment_size: 65537}",
            "1: wal.segment_size = 65537: expected a size from 64KiB to 1GiB"
            " in steps of 4KiB, such as 64MiB",
        ),
        (
            "wal: {segment_size: [1]}",
            "1: wal.segment_size = a list: expected a size from 64KiB to 1GiB"
            " in steps of 4KiB, such as 64MiB",
        ),
        (
            "wal: {batch_max_wait: 30}",
            "1: wal.batch_max_wait = 30: expected a time from 0 to 1s, such as 2ms",
        ),
        (
            "wal: {retention: {max_age: forever}}",
            "1: wal.retention.max_age = forever:"
            " expected a time from 1s to 36500d, such as 7d, or null",
        ),
        ("wal: {pre_allocate: 1}", "1: wal.pre_allocate = 1: expected true or false"),
        (
            "wal: 64MiB",
            "1: wal = 64MiB: expected a section with keys such as segment_size",
        ),
        ("data:", "1: data = null: expected the path of a folder"),
        ("data: ''", '1: data = "": expected the path of a folder'),
        (
            "listen: {amqp: 127.0.0.1}",
            "1: listen.amqp = 127.0.0.1: expected HOST:PORT with a port from 0 to 65535,"
            " such as 127.0.0.1:5672 or [::1]:5672",
        ),
        (
            "listen: {amqp: '::1:5672'}",
            "1: listen.amqp = ::1:5672: expected HOST:PORT with a port from 0 to 65535,"
            " such as 127.0.0.1:5672 or [::1]:5672",
        ),
        (
            "wal:\n  file_size: 256MiB",
            "2: wal.max_size = 512MiB: expected at least three times wal.file_size,"
            " which is 768MiB",
        ),
        (
            "wal:\n  batch_max_size: 40MiB",
            "2: wal.batch_max_size = 40MiB: expected at most half of wal.file_size, which is 32MiB",
        ),
        (
            "listen: {amqps: '127.0.0.1:0'}",
            "1: tls.cert = null: expected the path of a file, as listen.amqps is set",
        ),
        (
            "listen: {amqps: '127.0.0.1:0'}\ntls:\n  cert: c.pem",
            "1: tls.key = null: expected the path of a file, as listen.amqps is set",
        ),
        (
            "tls: {verify: required}",
            "1: tls.ca = null: expected the path of a file, as tls.verify is required",
        ),
        (
            "tls: {min_version: 1.1}",
            "1: tls.min_version = 1.1: expected 1.2 or 1.3",
        ),
        (
            "auth: {loopback_users: 'guest,,other'}",
            "1: auth.loopback_users = guest,,other: expected names with commas between them,"
            " such as guest, monitor, or null",
        ),
        (
            "queues: audit",
            "1: queues = audit: expected a list of rules such as"
            " {match: audit.*, flush_mode: immediate}",
        ),
        (
            "queues:\n  - audit",
            "2: queues[0] = audit: expected a list of rules such as"
            " {match: audit.*, flush_mode: immediate}",
        ),
        (
            "queues:\n  - flush_mode: async",
            "2: queues[0].match = null: expected a pattern of queue names, such as audit.*",
        ),
        (
            "queues:\n  - match: a\n  - match: b\n    flush: async",
            "4: queues[1].flush = async: no such key; the nearest is queues[1].flush_mode:"
            " batch, immediate or async",
        ),
        (
            "queues:\n  - match: a\n    retention: {check_interval: 1s}",
            "3: queues[0].retention.check_interval = 1s: no such key; the nearest is"
            " queues[0].retention.keep_settled: true or false",
        ),
        ("data: a\ndata: b", "2: data: said twice, first on line 1"),
        ("wal:\n  ? [a]\n  : b", "2: expected the name of a key"),
        ("- wal", "1: expected sections such as wal: or listen:"),
        ("wal: {", "1:7: not YAML: expected the node content, but found '<stream end>'"),
        ("wal:\n\tx: 1", "2:1: not YAML: found character '\\t' that cannot start any token"),
        ("wal: *nobody", "1:6: not YAML: found undefined alias 'nobody'"),
        (
            "a: 1\n---\nb: 2",
            "2:1: not YAML: expected a single document in the stream, but found another document",
        ),
        ("a: b\nc: \x01", "2:4: not YAML: special characters are not allowed"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_its_place(
    tmp_path: Path, text: str, line: str
) -> None:
    file = written(tmp_path, text)
    assert refusal(file) == f"{file}:{line}"


def test_a_mistake_in_the_file_shows_even_under_a_flag(tmp_path: Path) -> None:
    file = written(tmp_path, "data: ''")
    assert refusal(file, flags={("data",): ("--data", "x")}).startswith(f"{file}:1: data")


def test_a_mistake_in_a_variable_names_the_variable() -> None:
    assert refusal(environ={"OTTERMQ_WAL__FLUSH_MODE": "sometimes"}) == (
        "OTTERMQ_WAL__FLUSH_MODE: wal.flush_mode = sometimes: expected batch, immediate or async"
    )
    assert refusal(environ={"OTTERMQ_WAL_FLUSH_MODE": "batch"}) == (
        "OTTERMQ_WAL_FLUSH_MODE: wal_flush_mode = batch: no such key;"
        " the nearest is wal.flush_mode: batch, immediate or async"
    )
    assert refusal(environ={"OTTERMQ_QUEUES": "[]"}) == (
        "OTTERMQ_QUEUES: queues = []: expected no variable: rules for queues go into a file"
    )


def test_a_mistake_in_a_flag_names_the_flag() -> None:
    line = refusal(flags={("listen", "admin"): ("--admin", "here")})
    assert line.startswith("--admin: listen.admin = here: expected HOST:PORT")


def test_a_value_of_many_lines_is_told_in_one(tmp_path: Path) -> None:
    line = refusal(environ={"OTTERMQ_LOG__LEVEL": "a\nb\x1b[31m" + "c" * 100})
    assert "log.level = a�b�[31m" in line and line.count("c" * 10) < 7


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert refusal(missing) == f"{missing}: can't read it: No such file or directory"
    assert refusal(tmp_path) == f"{tmp_path}: can't read it: Is a directory"
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"data: \xe9")
    assert refusal(latin) == f"{latin}: not UTF-8 text at byte 6"


def test_a_file_nested_without_end_is_one_line(tmp_path: Path) -> None:
    file = written(tmp_path, "wal: " + "[" * 5000)
    assert refusal(file) == f"{file}: not YAML we read: nested too deeply"


def test_a_node_that_holds_itself_is_refused(tmp_path: Path) -> None:
    assert "no such key" in refusal(written(tmp_path, "wal: &w {retention: *w}"))
    assert "queues[0] = a list" in refusal(written(tmp_path, "queues: &q [*q]"))


KEYS = st.sampled_from([name for path, _ in schema.keys(Config) for name in path] + ["queues"])
TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=10)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(KEYS, st.text(max_size=5)), inner, max_size=4),
    ),
)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_any_tree_is_a_configuration_or_one_line(tmp_path: Path, tree: object) -> None:
    file = written(tmp_path, yaml.safe_dump(tree, allow_unicode=True))
    try:
        assert isinstance(load(file), Config)
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=60))
def test_any_bytes_are_a_configuration_or_one_line(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "broker.yaml"
    file.write_bytes(raw)
    try:
        assert isinstance(load(file), Config)
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1


def test_every_setting_tells_what_it_expects_in_words() -> None:
    for path, kind in schema.keys(Config):
        assert kind.expected, path
        assert isinstance(kind, Maybe) == kind.expected.endswith(", or null")
