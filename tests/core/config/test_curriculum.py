from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum

RATES = st.none() | st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["linear", "cosine", "wsd", "constant"]),
        "from": st.none() | st.floats(0, 2),
        "to": st.floats(0, 2),
        "warmup_steps": st.integers(0, 5),
    }
)
PHASE = st.fixed_dictionaries(
    {
        "steps": st.integers(1, 40),
        "sequences": st.integers(1, 12).map(lambda n: 2 * n),
        "seq_len": st.sampled_from([16, 32, 64]),
        "sources": st.none() | st.fixed_dictionaries({"a": st.integers(1, 9), "b": st.just(1)}),
        "lr": RATES,
    }
)
RAMPS = st.none() | st.fixed_dictionaries(
    {"from": st.sampled_from([0.1, 0.25, 0.5]), "steps": st.integers(1, 60)}
)


def curriculum_of(phases: list[dict[str, Any]], ramp: dict[str, Any] | None = None) -> Curriculum:
    named = [{"name": f"p{index}", **phase} for index, phase in enumerate(phases)]
    document = {
        "steps": sum(phase["steps"] for phase in phases) or 30,
        "phases": named,
        "batch": {"tokens": 512, "micro_batch": 2, "accumulation": 4, "ramp": ramp},
        "data": {"sources": [{"name": "a"}, {"name": "b", "weight": 3}], "seq_len": 64},
        "optimizer": {"lr": 0.01},
        "schedule": {"warmup_steps": 3},
    }
    return Curriculum.of(RunConfig.parse(document))


@settings(max_examples=60, deadline=None)
@given(st.lists(PHASE, min_size=1, max_size=4), RAMPS)
def test_every_step_follows_from_its_number_alone(
    phases: list[dict[str, Any]], ramp: dict[str, Any] | None
) -> None:
    curriculum, other = curriculum_of(phases, ramp), curriculum_of(phases, ramp)
    steps = range(1, curriculum.config.steps + 1)
    forwards = [(curriculum.rate(s), curriculum.shape(s), curriculum.weights(s)) for s in steps]
    backwards = [(other.rate(s), other.shape(s), other.weights(s)) for s in reversed(steps)]
    assert forwards == backwards[::-1]
    tokens = sequences = 0
    for step, (_, shape, _) in zip(steps, forwards, strict=True):
        assert curriculum.tokens_before(step - 1) == tokens
        assert curriculum.sequences_before(step - 1) == sequences
        assert curriculum.steps_before(sequences) == step - 1
        sequences += shape.micro_batch * shape.accumulation
        assert curriculum.steps_before(sequences - 1) == step - 1
        tokens += curriculum.tokens(step)
        assert shape.micro_batch * shape.seq_len <= max(2 * 64, shape.seq_len)
    assert curriculum.tokens_before(curriculum.config.steps) == tokens


@settings(max_examples=60, deadline=None)
@given(st.lists(PHASE, min_size=2, max_size=4))
def test_a_rate_without_a_start_continues_where_the_phase_before_has_ended(
    phases: list[dict[str, Any]],
) -> None:
    phases[1]["lr"] = {"kind": "linear", "from": None, "to": 0.0, "warmup_steps": 0}
    phases[1]["steps"] = 1000
    curriculum = curriculum_of(phases)
    border = curriculum.phases[0].ends
    assert curriculum.rate(border + 1) == pytest.approx(0.999 * curriculum.rate(border))
    assert curriculum.rate(curriculum.phases[1].ends) == 0.0


def test_a_run_without_phases_is_one_phase_of_its_schedule() -> None:
    curriculum = curriculum_of([])
    assert (curriculum.has_phases, curriculum.borders, curriculum.is_uniform) == (
        False,
        set(),
        True,
    )
    assert curriculum.rate(3) == pytest.approx(0.01)
    assert curriculum.rate(30) == pytest.approx(0.001)
    assert curriculum.tokens_before(30) == 30 * 512


def test_a_batch_grows_in_equal_stages_from_a_quarter() -> None:
    curriculum = curriculum_of([], {"from": 0.25, "steps": 6})
    assert [curriculum.tokens(step) for step in range(1, 9)] == [
        128,
        128,
        256,
        256,
        384,
        384,
        512,
        512,
    ]
