"""Answers take the fields that they declare, and are the same after a way through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from trainmaster.answers.base import Answer
from trainmaster.answers.diagnosis import PatchAnswer
from trainmaster.answers.status import CheckpointState, RunCost, StatusAnswer

_STATUS: dict[str, Any] = {
    "run_id": "gpt-abcdef",
    "name": "gpt",
    "state": "running",
    "host": "box",
    "attempt": 1,
    "step": 7,
    "metrics": {"loss": 3},
    "findings": [],
    "next_step": "Wait.",
}


def test_an_answer_without_a_field_or_with_another_one_is_refused() -> None:
    with pytest.raises(TypeError, match="CheckpointState lacks age_s"):
        CheckpointState(step=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="CheckpointState has no size"):
        CheckpointState(step=1, age_s=2.0, size=3)  # type: ignore[call-arg]


def test_numbers_of_a_field_of_floats_are_floats() -> None:
    status = StatusAnswer(**_STATUS, cost=RunCost(usd=2))
    assert '"metrics":{"loss":3.0}' in status.model_dump_json()
    assert '"cost":{"usd":2.0}' in status.model_dump_json()
    assert '"step":7,' in status.model_dump_json()


def test_an_answer_that_another_process_wrote_is_the_same() -> None:
    status = StatusAnswer(**_STATUS, cost=RunCost(usd=2), risks=["disk"])
    assert StatusAnswer.model_validate_json(status.model_dump_json()) == status
    patch = {"id": "a", "set": {}, "expected": {}, "from": 7, "keeps_batch": True, "why": "spike"}
    assert json.loads(PatchAnswer.model_validate(patch).model_dump_json()) == patch


@pytest.mark.parametrize(
    "changed", [{"step": "seven"}, {"state": "lively"}, {"unknown": 1}, {"findings": [{"id": 1}]}]
)
def test_what_another_process_wrote_is_validated(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StatusAnswer.model_validate(_STATUS | changed)


def test_an_answer_with_annotations_as_text_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Late\.step is text"):
        type("Late", (Answer,), {"__annotations__": {"step": "int"}})
