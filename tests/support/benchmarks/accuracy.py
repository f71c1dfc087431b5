"""The section of docs/diagnosis.md on how right the findings are, from the recorded benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.benchmarks.result import Result
from support.benchmarks.table import RESULTS

# A row a set and date, as labelled_texts.py and labelled_logs.py judge it.
_JUDGED = Path(__file__).parents[2] / "benchmarks" / "judged_texts.json"
_JUDGED_LOGS = _JUDGED.with_name("judged_logs.json")
_BEGIN = """
## Accuracy

`make bench BENCH=corpus` judges `diagnose FILE` on texts of failures with labels, and on logs of
public trainings and of other projects, which are not part of the project (`TRAINMASTER_FAILURES`,
`TRAINMASTER_LOGS`). A finding is right if it has the label's code, wrong if it warns of something
else; early signs (`grad_norm_rising`) and the end of a log (`vanished`) count as neither. The rules
were written with these logs at hand: expect less on others.

| measure | figure | |
|---|---|---|
"""


_TEXTS = """
### By set of texts

The first finding counts, by what it says: *right* names the cause with a code of its own and what
helps, *partly* is another finding that misleads nobody, *wrong* misleads (and is *sure* from 0.7
on). Precision is the share of right ones among all that was said, recall among all failures; alarms
are critical findings on healthy logs. Only what is called at first sight was measured before
anything was changed by reading its texts: expect that of logs of your own, not the rest. Of 86 logs
of other repositories and of real runs that end well or are cut (2026-11-28), one had a critical
finding: a loss of GRPO that the log calls `Actor Loss` and that is mostly 0; since then a loss
about zero counts as a policy's.

| set | date | failures | right | partly | silent | wrong | sure | precision | recall | alarms |
|---|---|---|---|---|---|---|---|---|---|---|
"""
_BUCKETS = """
### Confidence

Of what was said with so much confidence: how much was right, and how much misled nobody. What is
called at first sight has the confidence of that time. Since then a kind that more exact ones
replace says 0.8 at most: by that, of the findings of the second and third blind set at first sight
from 0.9 on, 47 of 52 were right, and 25 of 37 of what is said with less now.

| set | confidence | said | right | not misleading |
|---|---|---|---|---|
"""
_LOGS = """
### Logs of losses

*Exact* is read what has every training loss at the step that is printed beside it, and nothing
else; *silent* what has none and says so; *wrong* what has other values or steps.

| set | date | logs | exact | partly | silent | wrong |
|---|---|---|---|---|---|---|
"""
_OUTCOMES = ("exact", "partly", "silent", "wrong")
_ENDS = {"0.95": "0.95 to 1", "0.9": "0.9", "0.8": "0.8", "0.7": "0.7", "0.5": "0.5", "0": "below"}


def section() -> str:
    found = json.loads((RESULTS / "corpus.json").read_text())
    sets = json.loads(_JUDGED.read_text())
    rows = [_BEGIN, *(_row(Result.from_dict(one)) for one in found["results"])]
    rows += [_TEXTS, *map(_set, sets), _BUCKETS, *(row for one in sets for row in _buckets(one))]
    logs = json.loads(_JUDGED_LOGS.read_text())
    return "".join([*rows, _LOGS, *map(_logs, logs)])


def _logs(one: dict[str, Any]) -> str:
    numbers = [one[name] for name in _OUTCOMES]
    cells = [f"{one['set']}: {one['about']}", one["date"], sum(numbers), *numbers]
    return f"| {' | '.join(map(str, cells))} |\n"


def _set(one: dict[str, Any]) -> str:
    said = one["failures"] - one["silent"]
    alarms = f"{one['false_alarms']} of {one['healthy']}" if one["healthy"] else "-"
    numbers = [one[name] for name in ("failures", "right", "partly", "silent", "wrong")]
    shares = [one["right"] / said, one["right"] / one["failures"]]
    cells = [f"{one['set']}: {one['about']}", one["date"], *numbers, one["wrong_and_sure"]]
    return f"| {' | '.join(map(str, [*cells, *(f'{share:.0%}' for share in shares), alarms]))} |\n"


def _buckets(one: dict[str, Any]) -> Iterator[str]:
    for least, (said, right, harmless) in one["buckets"].items():
        yield f"| {one['set']} | {_ENDS[least]} | {said} | {right} | {harmless} |\n"


def _row(result: Result) -> str:
    return f"| {result.name} | {result.ours[0]:.1f} % | {result.note} |\n"
