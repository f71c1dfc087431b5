from __future__ import annotations

import json

import pytest

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.diagnosis.stacks.report import InspectionReport, ProcessReport, RankReport
from trainer_runtime.core.diagnosis.stacks.verdict import Pace, Verdict

WORKER = ProcessReport(43, "D", 0.0, 2, False, ("read (data.py:7)",), ("read /data/a.bin",))
TRAINER = ProcessReport(42, "S", 0.25, 3, True, ("step (train.py:9)",), ())
REPORT = InspectionReport(
    attempt=2,
    world_size=4,
    pace=Pace(step=10, silent_s=30.5, usual_s=1.25, recent_s=1.5, gained=0),
    verdict=Verdict(
        "stall", 0.95, "stopped_process", 1, {"pid": 42, "rank": 1, "usual_s": 1.5}, ("a line",)
    ),
    ranks=(
        RankReport(1, 10, "data", TRAINER, (WORKER,)),
        RankReport(2, None, "unknown", WORKER, ()),
    ),
    gpus={"gpu_util/0": 1.0},
    py_spy=None,
    stacks="File train.py, line 9",
)


def read(text: str) -> InspectionReport:
    return InspectionReport.of(decode_fields(text, "inspect"))


def test_a_report_survives_its_way() -> None:
    report = read(json.dumps(REPORT.to_dict()))
    assert report == REPORT
    assert repr(report.verdict.slots) == repr(REPORT.verdict.slots)  # whole numbers stay whole


@pytest.mark.parametrize("changed", [{"code": "dire"}, {"reason": "the moon"}])
def test_a_verdict_that_is_not_known_says_that_it_stalls(changed: dict[str, str]) -> None:
    report = REPORT.to_dict()
    report["verdict"] |= changed
    verdict = read(json.dumps(report)).verdict
    assert (verdict.code, verdict.confidence, verdict.reason) == ("stall", 0.0, "unknown_place")


@pytest.mark.parametrize("changed", [{"ranks": [{"rank": "one"}]}, {"stacks": 5}, {"pace": []}])
def test_a_malformed_report_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(DecodingError):
        read(json.dumps({**REPORT.to_dict(), **changed}))
