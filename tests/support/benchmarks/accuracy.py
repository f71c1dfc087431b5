"""The section of docs/diagnosis.md on how right the findings are, from the recorded benchmark."""

from __future__ import annotations

import json

from support.benchmarks.result import Result
from support.benchmarks.table import RESULTS

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


def section() -> str:
    found = json.loads((RESULTS / "corpus.json").read_text())
    return _BEGIN + "".join(_row(Result.from_dict(one)) for one in found["results"])


def _row(result: Result) -> str:
    return f"| {result.name} | {result.ours[0]:.1f} % | {result.note} |\n"
