"""Results as lines of a terminal and as the page docs/benchmarks.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from support.benchmarks.result import Result

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
_COLUMNS = ("work", "peer", "before", "ours", "ratio", "goal", "noise")
_WIDTHS = (44, 26, 12, 14, 8, 28, 6)
_PAGE = """\
# Benchmarks

`make bench` measures, `make bench RECORD=1` also writes this page, `make bench BENCH="parse store"`
takes some of the scripts `tests/benchmarks/bench_*.py`. Peers are the real programs, run in turns
with ours.

- **ratio**: how many times as fast as the peer, the median over the turns; above 1 we are faster.
- **noise**: half the distance between the quartiles of the single turns' ratios, as a share of
  their median. A goal that lies within it is `undecided`.
- **before**: an earlier version, where one was measured in the same run.
- Sections name the machine that they were measured on. One core of an `avx2` machine here is about
  half as fast as one of the others: across machines, compare ratios.
"""


def heading() -> str:
    return _row(_COLUMNS)


def text_line(result: Result) -> str:
    """`result` as one line of a terminal, with its note below."""
    line = _row(_cells(result))
    return f"{line}\n    {result.note}" if result.note else line


def page(folder: Path = RESULTS) -> str:
    """docs/benchmarks.md from the recorded results."""
    return _PAGE + "".join(section(json.loads(path.read_text())) for path in _recorded(folder))


def record(name: str, about: str, machine: str, results: Sequence[Result]) -> None:
    """Keep the results of one script, instead of its earlier ones."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(document(name, about, machine, results))


def document(name: str, about: str, machine: str, results: Sequence[Result]) -> str:
    """The results of one script as they are kept."""
    found = {
        "benchmark": name,
        "about": about,
        "machine": machine,
        "results": [result.to_dict() for result in results],
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def figure(samples: Sequence[float], unit: str) -> str:
    """The median with its unit: three digits, or whole thousands."""
    if not samples:
        return "–"
    median = statistics.median(samples)
    return f"{median:,.0f} {unit}" if abs(median) >= 100 else f"{median:.3g} {unit}"


def section(found: dict[str, Any]) -> str:
    """The part of the page that shows a kept document."""
    about = f"{found['about']} Measured on {found['machine']}."
    lines = ["", f"## {found['benchmark']}", "", about]
    lines += ["", f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    results = [Result.from_dict(result) for result in found["results"]]
    lines += [f"| {' | '.join(cell.strip() for cell in _cells(result))} |" for result in results]
    notes = [f"- {result.name}: {result.note}" for result in results if result.note]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _recorded(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _cells(result: Result) -> tuple[str, ...]:
    if result.not_run:
        return (result.name, "–", "–", f"not run: {result.not_run}", "", "", "")
    peer = f"{result.peer_name} {figure(result.peer, result.unit)}" if result.peer else "–"
    ratio, noise = result.ratio, result.noise
    return (
        result.name,
        peer,
        figure(result.before, result.unit),
        figure(result.ours, result.unit),
        "–" if ratio is None else f"{ratio:.2f}×",
        "–" if result.goal is None else f"{result.goal}: {result.verdict}",
        "–" if noise is None else f"±{noise:.0%}",
    )


def _row(cells: Iterable[str]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
