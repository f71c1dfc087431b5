"""The changes of a resume are a pure function of the run on record and of what is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_runtime.core.policy.patch import apply_sets
from trainmaster.errors.errors import SpecError
from trainmaster.plan import Calibration, CorpusFacts, HostFacts, plan
from trainmaster.plan.changes import Before, changes
from trainmaster.plan.planned import Planned
from trainmaster.plan.spec import load_spec

_SPEC = """\
name: small
framework: hf
model: {n_layer: 2, n_head: 2, d_model: 64}
steps: 20
data: {sources: [{name: main, path: /corpus, format: text}], seq_len: 64}
batch: {tokens: 768, micro_batch: 2}
compute: {processes: 2}
"""


@pytest.fixture
def before(cpu_host: HostFacts, text_corpus: CorpusFacts) -> Before:
    spec = load_spec(_SPEC)
    made = plan(spec, cpu_host, text_corpus)
    planned = Planned(spec, cpu_host, text_corpus, Calibration(), made, {})
    return Before(planned.spec_text, planned.to_dict(), planned.config, continues=True)


def _values(before: Before, *sets: str, **patch: Any) -> dict[str, Any]:
    return changes(before, sets, {name.replace("__", "."): patch[name] for name in patch}).values


def test_nothing_asked_for_changes_nothing(before: Before) -> None:
    assert changes(before, (), {}).spec == before.spec
    assert _values(before) == {}


def test_more_steps_keep_the_schedule_that_the_annotations_name(before: Before) -> None:
    values = _values(before, "steps=2000")
    assert (values["steps"], values["schedule.steps"]) == (2000, 20)
    assert "schedule.warmup_steps" not in values


def test_a_start_from_scratch_lays_the_schedule_again(before: Before) -> None:
    again = Before(before.spec, before.facts, before.newest, continues=False)
    values = _values(again, "steps=2000")
    assert "schedule.steps" not in values
    assert values["schedule.warmup_steps"] > before.newest["schedule"]["warmup_steps"]


@pytest.mark.parametrize("processes", [1, 3])
def test_other_ranks_keep_the_batch_and_what_is_evaluated(before: Before, processes: int) -> None:
    after = apply_sets(before.newest, _values(before, f"compute.processes={processes}"))
    batch = after["batch"]
    assert batch["micro_batch"] * batch["accumulation"] * processes == 6 * 2
    assert after["eval"] == before.newest["eval"]


def test_the_users_value_wins_over_the_patch(before: Before) -> None:
    values = _values(before, "optimizer.grad_clip=0.7", optimizer__grad_clip=0.5, precision="fp32")
    assert (values["optimizer.grad_clip"], values["precision"]) == (0.7, "fp32")


@pytest.mark.parametrize("field", ["seed=2", "data.seq_len=32", "host=other", "model.n_layer=3"])
def test_a_field_that_may_never_change_is_refused(before: Before, field: str) -> None:
    with pytest.raises(SpecError, match="can't change once the run exists") as refused:
        changes(before, [field], {})
    assert refused.value.field == field.partition("=")[0]
