"""The changes of a resume are a pure function of the run on record and of what is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_runtime.core.policy.patch import apply_sets
from trainmaster.errors.errors import SpecError
from trainmaster.plan import Calibration, CorpusFacts, HostFacts, plan
from trainmaster.plan.changes import Before, changes
from trainmaster.plan.changes.phases import refuse_past
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


_PHASES = """\
name: small
framework: hf
model: {n_layer: 2, n_head: 2, d_model: 64}
data:
  sources: [{name: main, path: /corpus}, {name: other, path: /other}]
  seq_len: 64
batch: {tokens: 768, micro_batch: 2}
phases:
  - {name: base, steps: 10}
  - {name: mixed, steps: 10, sources: {main: 0.9, other: 0.1}}
  - {name: last, steps: 10, lr: {to: 0}}
"""


@pytest.fixture
def curriculum(cpu_host: HostFacts, text_corpus: CorpusFacts) -> Before:
    other = text_corpus.sources[0].model_copy(update={"name": "other", "path": "/other"})
    corpus = text_corpus.model_copy(update={"sources": (*text_corpus.sources, other)})
    spec = load_spec(_PHASES)
    made = plan(spec, cpu_host, corpus)
    planned = Planned(spec, cpu_host, corpus, Calibration(), made, {})
    return Before(planned.spec_text, planned.to_dict(), planned.config, continues=True)


def _behind(before: Before, begins: int, *sets: str) -> dict[str, Any]:
    values = changes(before, sets, {}).values
    refuse_past(before.newest, values, sets, begins)
    return values


def test_what_has_not_begun_of_a_curriculum_can_change(curriculum: Before) -> None:
    values = _behind(curriculum, 12, "phases.last.steps=25", "phases.last.sources={other: 1}")
    after = apply_sets(curriculum.newest, values)
    assert (after["steps"], after["phases"][2]["steps"]) == (45, 25)
    assert after["phases"][2]["sources"] == {"other": 1.0}
    assert _behind(curriculum, 12, "phases.mixed.steps=15")["steps"] == 35


def test_steps_that_the_host_has_added_stay_where_a_later_phase_changes(
    curriculum: Before,
) -> None:
    extended = apply_sets(curriculum.newest, {"phases.base.steps": 15, "steps": 35})
    before = Before(curriculum.spec, curriculum.facts, extended, continues=True)
    assert _behind(before, 15, "phases.last.steps=20")["steps"] == 45


@pytest.mark.parametrize(
    ("change", "begins", "field"),
    [
        ("phases.base.steps=20", 10, "phases.base.steps"),
        ("phases.base.lr=0.1", 15, "phases.base.lr"),
        ("phases.mixed.sources={main: 1}", 12, "phases.mixed.sources"),
        ("phases.mixed.batch=1536", 12, "phases.mixed.batch"),
        ("phases.mixed.steps=1", 25, "phases.mixed.steps"),
    ],
)
def test_what_has_begun_of_a_curriculum_is_refused_by_name(
    curriculum: Before, change: str, begins: int, field: str
) -> None:
    with pytest.raises(SpecError) as refused:
        _behind(curriculum, begins, change)
    assert refused.value.field == field
    assert "not begun" in refused.value.fix


def test_a_sources_weight_changes_by_its_name(curriculum: Before) -> None:
    assert _behind(curriculum, 12, "data.sources.other.weight=3") == {
        "data.sources.other.weight": 3.0
    }
