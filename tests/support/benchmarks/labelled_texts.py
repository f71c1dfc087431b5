"""Judges `diagnose FILE` on a folder of texts whose `labels.json` says what a right answer says.

    python tests/support/benchmarks/labelled_texts.py FOLDER

A label has `want` (an expression that explanation, advice or code of the first finding match),
`never` (one that makes it misleading) and `healthy`. Right: it wants so, with a code of its own;
partly: another finding, nothing misleading. A wrong one is sure of it from 0.7 on.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.answers.diagnosis import FindingAnswer
from trainmaster.runs.diagnosis.diagnose_file import diagnose_file

_SURE = 0.7
_BUCKETS = (0.95, 0.9, 0.8, 0.7, 0.5, 0.0)


@dataclass(slots=True)
class TextScore:
    """Numbers of texts by outcome; `buckets`: of each least confidence, how many were said at it
    and how many of them were right, and how many were not misleading."""

    failures: int = 0
    healthy: int = 0
    right: int = 0
    partly: int = 0
    silent: int = 0
    wrong: int = 0
    wrong_and_sure: int = 0
    false_alarms: int = 0
    buckets: dict[str, list[int]] = field(default_factory=dict)


def judge_texts(folder: Path) -> TextScore:
    """Diagnose every labelled text of a folder."""
    score = TextScore()
    labels: Mapping[str, Mapping[str, Any]] = json.loads((folder / "labels.json").read_text())
    for name, label in labels.items():
        first = next(iter(diagnose_file(folder / label.get("file", f"{name}.txt")).findings), None)
        if label["healthy"]:
            score.healthy += 1
            score.false_alarms += first is not None and first.severity == "critical"
        else:
            _judge(first, label, score)
    return score


def _judge(first: FindingAnswer | None, label: Mapping[str, Any], score: TextScore) -> None:
    outcome = outcome_of(first, label)
    score.failures += 1
    setattr(score, outcome, getattr(score, outcome) + 1)
    if first is None:
        return
    score.wrong_and_sure += outcome == "wrong" and first.confidence >= _SURE
    bucket = next(least for least in _BUCKETS if first.confidence >= least)
    said = score.buckets.setdefault(f"{bucket:g}", [0, 0, 0])
    for place, counts in enumerate((True, outcome == "right", outcome != "wrong")):
        said[place] += counts


def outcome_of(first: FindingAnswer | None, label: Mapping[str, Any]) -> str:
    """`right`, `partly`, `silent` or `wrong`."""
    if first is None:
        return "silent"
    said = " ".join((first.code, first.explanation, *first.advice))
    if label["never"] and re.search(label["never"], said, re.IGNORECASE):
        return "wrong"
    named = first.code != "unknown_error"
    return "right" if named and re.search(label["want"], said, re.IGNORECASE) else "partly"


def judge_own(texts: Mapping[str, tuple[str, ...]], folder: Path) -> Iterator[tuple[str, str]]:
    """Of our own texts by code, the code that each has and the one that is named first."""
    path = folder / "own.txt"
    for code, samples in texts.items():
        for text in samples:
            path.write_text(f"{text}\n")
            found = diagnose_file(path).findings
            yield code, found[0].code if found else ""


def own_score(folder: Path) -> Counter[str]:
    """How many of our own texts, and of the rows' examples, are named first as they should be."""
    from support.core.failure_samples import FAILURES

    from trainer_runtime.core.diagnosis.kinds import KINDS

    texts = dict(FAILURES)
    for kind in KINDS:
        examples = tuple(wording.example for wording in kind.wordings)
        texts[kind.code] = (*texts.get(kind.code, ()), *examples)
    return Counter(
        "right" if code == named else "wrong" for code, named in judge_own(texts, folder)
    )


if __name__ == "__main__":
    from dataclasses import asdict

    print(json.dumps(asdict(judge_texts(Path(sys.argv[1])))))
