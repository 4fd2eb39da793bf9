"""A whole comparison in small: the two relays take turns, and a table, JSON and SVG come out."""

from pathlib import Path

import pytest

from perf import bench, contest, load, report, scenarios
from perf.load import Confirms, Load, Sample
from perf.programs import ROOT
from perf.scenarios import SCENARIOS, Effort, first_and_last_fifth
from perf.served import Served


def quick(folder: Path, *options: str) -> list[str]:
    small = ["--rounds", "2", "--seconds", "0.1", "--warm-up", "0.05", "--scale", "0.001"]
    paths = ["--json", str(folder / "x.json"), "--svg", str(folder / "x.svg")]
    return ["amqp", "--data", str(folder), *small, *paths, *options]


def test_the_relays_are_compared_and_the_rest_is_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = [part for name in ("1k", "64k-backlog", "latency") for part in ("--only", name)]
    bench.main(quick(tmp_path, "--brokers", "relay,durable", "--no-priming", *only))
    found = report.read(tmp_path / "x.json")
    assert [outcome.name for outcome in found.outcomes] == ["1k", "64k-backlog", "latency"]
    assert set(found.outcomes[0].found) == {"relay", "durable"}
    assert set(found.outcomes[1].found) == {"relay"}
    assert all(outcome.errors == {} for outcome in found.outcomes)
    assert "rate" in found.outcomes[0].found["relay"]
    assert "p99" in found.outcomes[2].found["durable"]
    assert not any(verdict.met for outcome in found.outcomes for verdict in outcome.verdicts)
    assert "1 KiB persistent" in capsys.readouterr().out
    assert (tmp_path / "x.svg").read_text().startswith("<svg")
    assert not list(tmp_path.glob("amqp-*")), "the brokers' files are gone"


def test_an_earlier_version_takes_turns_with_us_and_no_rate_may_sink(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ["--no-priming", "--only", "latency", "--only", "1k"]
    bench.main(quick(tmp_path, "--before", str(ROOT), *only))
    rate, latency = report.read(tmp_path / "x.json").outcomes
    assert set(rate.found) == set(latency.found) == {"ottermq", "before"}
    assert [verdict.bar for verdict in rate.verdicts] == ["≥ 0.97 × before"]
    assert [verdict.bar for verdict in latency.verdicts] == [
        "p50 ≤ 1.03 × before",
        "p99 ≤ 1.03 × before",
    ]
    assert all(verdict.ratio for verdict in (*rate.verdicts, *latency.verdicts))
    assert not (tmp_path / "x.svg").exists()
    assert "make record" not in capsys.readouterr().err


def test_an_unknown_bench_is_told_what_there_is() -> None:
    with pytest.raises(SystemExit, match="log --help, amqp --help"):
        bench.main(["speed"])


def test_scenarios_have_names_of_their_own_and_bars_on_what_they_measure() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    for scenario in SCENARIOS:
        peers = {bar.peer for bar in scenario.bars if not bar.elsewhere}
        assert scenario.bars
        assert peers <= set(scenario.contestants)


def filled(*series: Sample) -> Load:
    last = series[-1]
    return Load(
        seconds=last.time, published=last.published, confirmed=last.confirmed, delivered=0,
        published_rate=0, confirmed_rate=0, delivered_rate=0, passed_rate=0,
        all_seconds=last.time, cpu=0, watched_cpu=0, series=series,
        confirm_us=Confirms(0, 0, 0, 0, 0),
    )  # fmt: skip


def test_the_speed_of_the_first_and_the_last_fifth_is_told_apart() -> None:
    steady = [Sample(second, second * 100, second * 100, 0) for second in range(1, 10)]
    sinking = Sample(13, 1000, 1000, 0)
    first, last = first_and_last_fifth(filled(*steady, sinking), 1000)
    assert first == pytest.approx(100)
    assert last == pytest.approx(200 / 5)


def test_the_memory_of_a_backlog_is_touched_right_before_it_is_filled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    def play(address: object, *options: object) -> Load:
        steps.append("fill" if "--keep" in options else "drain or live")
        return filled(Sample(1, 5000, 5000, 0))

    monkeypatch.setattr(load, "run", play)
    monkeypatch.setattr(scenarios, "prime", lambda size: steps.append(f"touch {size}"))
    scenario = next(each for each in SCENARIOS if each.name == "backlog")
    scenario.measure(("127.0.0.1", 1), (), Effort(scale=0.001, priming=True))
    assert steps == ["drain or live", f"touch {5000 * 256 * 3}", "fill", "drain or live"]


def test_a_broker_that_fails_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = lambda folder: Served("broken", ["false"], None, tmp_path / "output")  # noqa: E731
    monkeypatch.setitem(contest.SERVERS, "relay", broken)
    told: list[str] = []
    scenario = next(each for each in SCENARIOS if each.name == "16b")
    with contest.Contest(tmp_path, ["relay", "durable"], told.append) as held:
        outcome = held.hold(scenario, 2, Effort(seconds=0.1, warm_up=0.05))
    assert "broken ended (1)" in outcome.errors["relay"]
    assert set(outcome.found) == {"durable"}
    assert len(outcome.rounds["durable"]) == 2


def test_a_broker_that_keeps_too_much_on_disk_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "MOST_KEPT", 1 << 20)
    scenario = next(each for each in SCENARIOS if each.name == "16b")
    left: list[bool] = []
    with contest.Contest(tmp_path, ["durable"], lambda _: left.append(log.exists())) as held:
        log = tmp_path / "durable"
        outcome = held.hold(scenario, 2, Effort(seconds=0.1, warm_up=0.05))
    assert outcome.errors == {}
    assert len(outcome.rounds["durable"]) == 2
    assert left == [False, False]
