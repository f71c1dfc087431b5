"""Runs the benchmark scripts one after another, each for a bounded time.

    python tests/benchmarks/run.py [NAME...] [--record] [-- OPTIONS OF THE SCRIPTS]

`--record` keeps the results under tests/benchmarks/results and writes docs/benchmarks.md from them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import LIMIT_VARIABLE, RESULTS_VARIABLE
from support.benchmarks.machine import machine_shape
from support.benchmarks.result import Result
from support.benchmarks.table import page, record

SCRIPTS = Path(__file__).parent
_WHOLE_S = 14.5 * 60.0
# The parts of the time: about the seconds that each takes on two slow cores. What a script does not
# need is left to those after it; the last ones take as many turns as there is time for.
_USUAL_PART = 30.0
_PARTS = {
    "corpus": 15.0,
    "crowds": 110.0,
    "detectors": 12.0,
    "earlier": 5.0,
    "files": 35.0,
    "following": 90.0,
    "long_run": 45.0,
    "many_runs": 175.0,
    "server": 50.0,
    "slurm": 120.0,
    "ssh": 40.0,
    "start": 50.0,
    "supervision": 45.0,
    "neighbours": 60.0,
    "tokenizing": 60.0,
    "training": 200.0,
}
_LAST = ("neighbours", "training")
_TO_END_S = 30.0
_PAGE = SCRIPTS.parents[1] / "docs" / "benchmarks.md"


def main() -> int:
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args(arguments[:cut])
    scripts = {path.stem.removeprefix("bench_"): path for path in SCRIPTS.glob("bench_*.py")}
    if unknown := [name for name in options.names if name not in scripts]:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(scripts)}")
    print(machine_shape(), flush=True)
    ends, failed = time.monotonic() + _WHOLE_S, []
    bounded = not options.names  # what is asked for by name may take what it takes
    due = options.names or [*sorted(scripts.keys() - set(_LAST)), *_LAST]
    while due:
        limit_s = part_of(due, ends - time.monotonic()) if bounded else None
        name = due.pop(0)
        if not run(name, scripts[name], arguments[cut + 1 :], limit_s, keep=options.record):
            failed.append(name)
    if options.record:
        _PAGE.write_text(page())
    if failed:
        print(f"not finished: {', '.join(failed)}")
    return 1 if failed else 0


def part_of(due: list[str], left_s: float) -> float:
    """How long the first of those that are due may take."""
    parts = [_PARTS.get(name, _USUAL_PART) for name in due]
    return max(0.0, left_s) * parts[0] / sum(parts)


def run(name: str, script: Path, options: list[str], limit_s: float | None, *, keep: bool) -> bool:
    """Run one script and record what it reported, also where it was ended or failed."""
    print(f"\n{name}: {about(script)}", flush=True)
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as file:
        environment = {**os.environ, RESULTS_VARIABLE: file.name}
        if limit_s is not None:
            environment[LIMIT_VARIABLE] = str(limit_s)
        process = subprocess.Popen(
            [sys.executable, str(script), *options], env=environment, start_new_session=True
        )
        try:
            completed = process.wait(None if limit_s is None else limit_s + _TO_END_S) == 0
        except subprocess.TimeoutExpired:
            print(f"{name}: it did not end by itself", flush=True)
            completed = False
        finally:
            end(process)
        results = [Result.from_dict(json.loads(line)) for line in file]
    if keep and results:
        record(name, about(script), machine_shape(), results)
    return completed


def end(process: subprocess.Popen[bytes]) -> None:
    """End the script, first so that it can clean up, and what is left of its session."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def about(script: Path) -> str:
    """The first sentence of a script's docstring."""
    return (ast.get_docstring(ast.parse(script.read_text())) or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
