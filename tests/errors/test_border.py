"""What comes from outside leaves here as clean text of a bounded size."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from support.errors.hostile_answers import HOSTILE, every_answer, hostile, unshowable

from trainmaster.answers import (  # noqa: F401
    actions,
    adopt,
    alerts,
    diagnosis,
    hosts,
    inspect,
    keeper,
    metrics,
    plot,
    rentals,
    run_list,
    runs,
    status,
)
from trainmaster.answers.base import ON_COMMAND_LINE, WholeAnswer
from trainmaster.answers.fitting import Cap, size_of
from trainmaster.errors.errors import Problem, SpecError, UsageError
from trainmaster.machines import approvals  # noqa: F401 - answers beside those of words.answers
from trainmaster.runs.status import status_page  # noqa: F401

_LARGEST_ERROR = 8_000
_worst = cache(hostile)


@pytest.mark.slow
@pytest.mark.parametrize("kind", every_answer(), ids=lambda kind: kind.__name__)
def test_the_worst_answer_is_clean_and_within_its_cap(kind: type[WholeAnswer]) -> None:
    answer = _worst(kind)
    body = json.loads(answer.model_dump_json())
    assert size_of(body) <= answer.size_cap().size_bytes
    assert not list(unshowable(body))
    assert kind.model_validate(body)


@pytest.mark.parametrize("kind", every_answer(), ids=lambda kind: kind.__name__)
def test_an_answer_on_the_command_line_is_clean_too(kind: type[WholeAnswer]) -> None:
    body = json.loads(_worst(kind).model_dump_json(context=ON_COMMAND_LINE))
    assert not list(unshowable(body))


def _finding(number: int) -> dict[str, Any]:
    return {
        "id": f"{number:08x}", "code": "cuda_oom", "severity": "critical", "confidence": 1.0,
        "evidence": ["RuntimeError: CUDA out of memory. " * 10] * 6, "explanation": "e" * 300,
        "advice": ["a" * 100] * 3, "led_to": [], "patches": [],
    }  # fmt: skip


def test_a_diagnosis_keeps_its_first_findings_whole_and_says_where_it_continues() -> None:
    answer = diagnosis.DiagnosisAnswer.model_validate(
        {"findings": [_finding(number) for number in range(10_000)]}
    )
    body = answer.model_dump()
    kept = len(body["findings"])
    assert kept >= 2
    assert body["findings"] == [_finding(number) for number in range(kept)]
    assert body["omitted"] == 10_000 - kept
    assert body["cursor"] == body["findings"][-1]["id"]


def test_a_status_with_ten_thousand_findings_keeps_everything_else() -> None:
    row = {"id": "0" * 8, "code": "cuda_oom", "severity": "critical"}
    answer = status.StatusAnswer.model_validate(
        {
            "run_id": "r-aaaaaa",
            "name": "r",
            "state": "failed",
            "host": "local",
            "attempt": 1,
            "step": 7,
            "metrics": {"loss": 2.5},
            "findings": [row] * 10_000,
            "next_step": "`trainmaster diagnose r-aaaaaa` explains it.",
        }
    )
    body = answer.model_dump()
    assert size_of(body) <= 2048
    assert body["metrics"] == {"loss": 2.5}
    assert body["next_step"] == answer.next_step
    assert len(body["findings"]) + body["shortened"]["findings"] == 10_000


def test_columns_of_samples_keep_the_same_rows_and_the_last_one() -> None:
    steps = list(range(20_000))
    series = {"n": 20_000, "steps": steps, "values": [float(step) for step in steps]}
    answer = metrics.MetricsAnswer.model_validate({"runs": {"r": {"loss": series}}})
    kept = answer.model_dump()["runs"]["r"]["loss"]
    assert kept["steps"] == kept["values"]
    assert kept["steps"][-1] == 19_999
    assert answer.model_dump(context=ON_COMMAND_LINE)["runs"]["r"]["loss"]["steps"] == steps


def test_every_cap_is_at_most_what_an_agents_context_takes() -> None:
    assert all(kind.cap.size_bytes <= 128_000 for kind in every_answer())
    assert status.StatusAnswer.cap.size_bytes == 2048
    assert diagnosis.DiagnosisAnswer.cap.size_bytes == 8192
    assert Cap().size_bytes == 50_000


def test_an_error_is_one_clean_line_of_bounded_length_whatever_it_quotes() -> None:
    error = UsageError("BAD_ARGUMENT", HOSTILE * 10_000, HOSTILE * 10_000, field=HOSTILE * 100)
    problems = [Problem("WRONG_TYPE", HOSTILE, HOSTILE * 100, HOSTILE) for _ in range(1000)]
    for raised in (error, SpecError.listing(problems)):
        assert not list(unshowable(str(raised)))
        assert "\n" not in str(raised)
        assert len(str(raised)) < _LARGEST_ERROR
        assert not list(unshowable(raised.to_dict()))
