"""Judges `diagnose FILE` and the parser on a corpus of failures and logs that is not ours.

`TRAINMASTER_FAILURES` names a folder of texts with `labels.json`, `TRAINMASTER_LOGS` one of logs
(`public`, `captured`, `wild.tar.xz` with `wild.json`). Neither is part of the project.
"""

from __future__ import annotations

import json
import math
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainer_runtime.core.diagnosis.parse import LogParser
from trainmaster.answers.diagnosis import FindingAnswer
from trainmaster.errors.errors import TrainmasterError
from trainmaster.runs.diagnosis.diagnose_file import diagnose_file

_SHARED = Path(__file__).parents[3].parent / "shared"
# Logs that end in a failure, as read by eye, and the codes that name it.
_ENDS_BADLY = Path(__file__).parents[2] / "benchmarks" / "corpus_labels.json"
# Early signs, and how a log ends: no failure of their own, so neither right nor wrong.
_ASIDE = frozenset({"grad_norm_rising", "vanished"})
_LABELLED = ("loss", "val_loss")


@dataclass(slots=True)
class Score:
    """Failures: their code is `right` or `missing`, also `first`; `wrong` are other open findings
    that warn. Logs: `stopped` are healthy ones with an open critical finding. Series: `exact`."""

    right: int = 0
    first: int = 0
    wrong: int = 0
    missing: int = 0
    healthy: int = 0
    stopped: int = 0
    series: int = 0
    exact: int = 0

    @property
    def precision(self) -> float:
        return 100 * self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        return 100 * self.right / max(1, self.right + self.missing)


def folder_of(variable: str, name: str) -> Path | None:
    """A part of the corpus; None where it is not at hand."""
    folder = Path(os.environ.get(variable) or _SHARED / name)
    return folder if folder.is_dir() else None


@contextmanager
def unpacked(folder: Path) -> Iterator[Path]:
    """The folder with the logs of `wild.tar.xz`."""
    with TemporaryDirectory() as temporary:
        with tarfile.open(folder / "wild.tar.xz") as archive:
            archive.extractall(temporary, filter="data")
        names = json.loads((folder / "wild.json").read_text())
        yield next(Path(temporary).rglob(next(iter(names)))).parent


def judge_failures(folder: Path, score: Score) -> None:
    for case in json.loads((folder / "labels.json").read_text()):
        _judge(_open_findings(folder / case["file"]), [case["label"]], score)


def judge_logs(folder: Path, score: Score) -> None:
    """Diagnose every log, and compare the series of those whose numbers are known."""
    labels: Mapping[str, Sequence[str]] = json.loads(_ENDS_BADLY.read_text())
    with unpacked(folder) as wild:
        for path in sorted([*(folder / "public").iterdir(), *_captured(folder), *wild.iterdir()]):
            found = _open_findings(path)
            if path.name in labels:
                _judge(found, labels[path.name], score)
                continue
            score.healthy += 1
            score.stopped += any(one.severity == "critical" for one in found)
        for name, truth in json.loads((folder / "wild.json").read_text()).items():
            if any(key in truth for key in _LABELLED):
                score.series += 1
                score.exact += _is_exact(wild / name, truth)


def _captured(folder: Path) -> Iterator[Path]:
    return (folder / "captured").iterdir()


def _open_findings(path: Path) -> list[FindingAnswer]:
    try:
        return [one for one in diagnose_file(path).findings if not one.over]
    except TrainmasterError:
        return []


def _judge(found: Sequence[FindingAnswer], label: Sequence[str], score: Score) -> None:
    codes = [one.code for one in found if one.severity != "info"]
    if set(codes) & set(label):
        score.right += 1
        score.first += codes[0] in label
    else:
        score.missing += 1
    score.wrong += len(set(codes) - set(label) - _ASIDE)


def _is_exact(path: Path, truth: Mapping[str, Any]) -> bool:
    """Whether number, first and last value of each labelled series are those of the truth."""
    parser, points = LogParser(), []
    for parsed in (parser.feed(path.read_bytes()), parser.close()):
        points += list(parsed)
    for key in _LABELLED:
        values, wanted = [one.value for one in points if one.key == key], truth.get(key)
        if wanted is None and not values:
            continue
        if wanted is None or len(values) != wanted["n"]:
            return False
        ends = zip((values[0], values[-1]), (wanted["first"], wanted["last"]), strict=True)
        if not all(math.isclose(one, other, rel_tol=1e-6) for one, other in ends):
            return False
    return True
