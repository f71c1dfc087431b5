"""The benchmarks' figures, and the page that is made from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.benchmarks.benchmark import LIMIT_VARIABLE
from support.benchmarks.result import Result, at_least, at_most, of_peers_time, times_as_fast
from support.benchmarks.table import page, text_line
from support.benchmarks.turns import OutOfTime, in_turns, peak_memory_mib

_DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_the_recorded_results() -> None:
    assert (_DOCS / "benchmarks.md").read_text() == page(), "run `make docs`"


@pytest.mark.parametrize(
    ("unit", "ours", "peer", "goal", "verdict"),
    [
        ("ms", (10.0, 10.0), (22.0, 22.0), times_as_fast(2.0), "met"),
        ("ms", (10.0, 10.0), (18.0, 18.0), times_as_fast(2.0), "missed"),
        ("MB/s", (10.0, 10.0), (18.0, 18.0), times_as_fast(0.5), "met"),
        ("s", (4.0, 4.0), (2.0, 2.0), of_peers_time(1.3), "missed"),
        ("s", (2.0, 2.0), (2.0, 2.0), of_peers_time(1.0), "met"),
        ("MB/s", (90.0, 90.0), (), at_least(100), "missed"),
        ("%", (1.0, 1.0), (), at_most(2), "met"),
        ("ms", (10.0, 20.0), (22.0, 22.0), times_as_fast(1.5), "undecided"),
    ],
)
def test_a_goal_within_the_noise_is_undecided(
    unit: str,
    ours: tuple[float, ...],
    peer: tuple[float, ...],
    goal: object,
    verdict: str,
) -> None:
    assert Result("b", "work", unit, ours=ours, peer=peer, goal=goal).verdict == verdict


def test_the_ratio_is_that_of_turns_taken_together() -> None:
    slowed = Result("b", "work", "ms", ours=(10.0, 40.0, 10.0), peer=(20.0, 80.0, 20.0))
    assert slowed.ratio == 2.0
    assert slowed.noise == 0.0


def test_results_survive_being_recorded() -> None:
    result = Result(
        "b", "work", "s", ours=(1.5,), peer=(3.0,), peer_name="grep -c", goal=at_least(2), note="n"
    )
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    assert "not run: no GPU" in text_line(Result("b", "work", "", not_run="no GPU"))


def test_every_second_turn_goes_backwards() -> None:
    order: list[str] = []
    sides = {name: lambda name=name: order.append(name) or 1.0 for name in ("peer", "ours")}
    assert in_turns(sides, 2) == {"peer": (1.0, 1.0), "ours": (1.0, 1.0)}
    assert order == ["peer", "ours", "ours", "peer"]


def test_turns_are_fewer_where_time_is_short_but_never_less_than_three() -> None:
    sides = {"ours": lambda: 1.0}
    assert len(in_turns(sides, 5, enough_s=0.0)["ours"]) == 3
    assert len(in_turns(sides, 2, enough_s=0.0)["ours"]) == 2
    with pytest.raises(OutOfTime, match="a turn takes 0 s"):
        in_turns(sides, 5, left_s=0.0)


_SCRIPT = """
import asyncio, sys
sys.path.insert(0, sys.argv.pop(1))
from support.benchmarks.benchmark import Benchmark, run_benchmark

async def hang():
    try:
        await asyncio.Event().wait()
    except Exception:
        print("caught")

def measure(bench: Benchmark) -> None:
    bench.report("work", "s", ours=[1.0])
    try:
        asyncio.run(hang())
    except BaseException as error:
        raise BaseExceptionGroup("tasks", [error])

run_benchmark(measure)
"""


def test_a_script_without_time_left_ends_by_itself_and_says_so(tmp_path: Path) -> None:
    script = tmp_path / "bench_hanging.py"
    script.write_text(_SCRIPT)
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(script), tests],
        env={**os.environ, LIMIT_VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, 3), done
    assert lines[1].startswith("work ")
    assert "what was still to measure" in lines[2] and "not run: 1 s were over" in lines[2]


def test_the_memory_of_a_command_is_its_own() -> None:
    assert peak_memory_mib(["true"]) < peak_memory_mib(
        ["python3", "-c", "print(len(b'x' * (100 << 20)))"]
    )
