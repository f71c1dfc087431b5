"""One benchmark script: its options, its turns, and its results as lines and as JSON.

def measure(bench: Benchmark) -> None:
    log = made_log("nanogpt", int(bench.sizes["lines"]))
    bench.compare(
        "nanoGPT's log",
        "MB/s",
        ours=rate(lambda: parse(log), len(log) / 1e6),
        peer=("grep -c", rate(lambda: grep(log), len(log) / 1e6)),
        goal=at_least(100),
    )

if __name__ == "__main__":
    run_benchmark(measure, lines=Size(40_000, full=20_000_000))
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.benchmarks.result import Goal, Result
from support.benchmarks.table import heading, text_line
from support.benchmarks.turns import OutOfTime, Sample, in_turns

RESULTS_VARIABLE = "TRAINMASTER_BENCH_RESULTS"  # a file to which results are appended as JSON
LIMIT_VARIABLE = "TRAINMASTER_BENCH_LIMIT_S"  # how long the script may take; unset: as it likes
_TURNS = 5
_LONGEST_START_S = 900.0
_AT_THE_END_S = 3.0  # to end what was started


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured by default, and with `--full`: the size that the goal is about."""

    usual: float
    full: float


@dataclass
class Benchmark:
    """A script under way. `sizes`: how much to measure; `before`: a checkout of an earlier version,
    to measure beside this one where a line runs whole programs; `ends_t`: when the script has to
    have ended, by the monotonic clock."""

    name: str
    sizes: dict[str, float]
    turns: int
    before: Path | None = None
    ends_t: float = math.inf
    results: list[Result] = field(default_factory=list)

    def left_s(self) -> float:
        """How long the script may still take."""
        return self.ends_t - time.monotonic()

    def starting_s(self) -> float:
        """How long what is to be measured next may take to start."""
        return min(_LONGEST_START_S, self.left_s() / 2)

    def in_turns(
        self, sides: Mapping[str, Sample], turns: int | None = None
    ) -> dict[str, tuple[float, ...]]:
        """Each side's figures, in as many turns as half of the time that is left allows.

        Raises:
            OutOfTime: three do not fit into what is left.
        """
        left_s = self.left_s()
        return in_turns(sides, turns or self.turns, enough_s=left_s / 2, left_s=left_s)

    def compare(
        self,
        name: str,
        unit: str,
        *,
        ours: Sample,
        peer: tuple[str, Sample] | None = None,
        before: Sample | None = None,
        goal: Goal | None = None,
        note: str = "",
        turns: int | None = None,
    ) -> Result:
        """Take all sides in turns and report one line: as not run, where time is short."""
        sides = {"peer": peer and peer[1], "before": before, "ours": ours}
        try:
            taken = self.in_turns({side: of for side, of in sides.items() if of}, turns)
        except OutOfTime as error:
            return self.not_run(name, str(error))
        return self.report(
            name,
            unit,
            ours=taken["ours"],
            peer=(peer[0], taken["peer"]) if peer else None,
            before=taken.get("before", ()),
            goal=goal,
            note=note,
        )

    def report(
        self,
        name: str,
        unit: str,
        *,
        ours: Sequence[float],
        peer: tuple[str, Sequence[float]] | None = None,
        before: Sequence[float] = (),
        goal: Goal | None = None,
        note: str = "",
    ) -> Result:
        """Report a line whose figures are at hand."""
        peer_name, peers = peer or ("", ())
        return self._add(
            Result(
                self.name,
                name,
                unit,
                ours=tuple(ours),
                peer=tuple(peers),
                peer_name=peer_name,
                before=tuple(before),
                goal=goal,
                note=note,
            )
        )

    def not_run(self, name: str, reason: str) -> Result:
        """Report that a line could not be measured here."""
        return self._add(Result(self.name, name, "", not_run=reason))

    def _add(self, result: Result) -> Result:
        if not self.results:
            print(heading())
        self.results.append(result)
        print(text_line(result), flush=True)
        if place := os.environ.get(RESULTS_VARIABLE):
            with Path(place).open("a") as file:
                file.write(json.dumps(result.to_dict()) + "\n")
        return result


class _LimitReached(KeyboardInterrupt):
    """No error of what is measured, and so not caught there, nor in an event loop."""


def run_benchmark(measure: Callable[[Benchmark], None], **sizes: Size) -> None:
    """Read the command line of the script that is running, and measure."""
    script = sys.modules["__main__"]
    parser = argparse.ArgumentParser(description=(script.__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=_TURNS)
    parser.add_argument("--full", action="store_true", help="at the sizes that goals are about")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version")
    for name, size in sizes.items():
        shown = f"{size.usual:g}, with --full {size.full:g}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, dest=name, help=shown)
    options = vars(parser.parse_args())
    chosen = {
        name: (size.full if options["full"] else size.usual)
        if options[name] is None
        else options[name]
        for name, size in sizes.items()
    }
    name = Path(script.__file__ or "").stem.removeprefix("bench_")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what it started is ended first
    bench = Benchmark(name, chosen, options["turns"], options["before"])
    limit_s = float(os.environ.get(LIMIT_VARIABLE, "inf"))
    if math.isinf(limit_s):
        measure(bench)
    else:
        _measure_within(bench, limit_s, measure)


def _measure_within(bench: Benchmark, limit_s: float, measure: Callable[[Benchmark], None]) -> None:
    """Measure what there is time for; what was under way at the end is reported as not run."""

    reached = False

    def limit_reached(*_: object) -> None:
        nonlocal reached
        reached = True
        raise _LimitReached

    bench.ends_t = time.monotonic() + limit_s - _AT_THE_END_S
    signal.signal(signal.SIGALRM, limit_reached)
    signal.setitimer(signal.ITIMER_REAL, max(0.1, limit_s - _AT_THE_END_S))
    try:
        measure(bench)
    except BaseException:
        if not reached:  # else whatever that has become: groups of tasks put it into others
            raise
        bench.not_run("what was still to measure", f"{limit_s:.0f} s were over")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
