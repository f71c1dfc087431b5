"""Phases that can't be are refused by name, with what would be accepted."""

from __future__ import annotations

import pytest

from trainmaster.errors.errors import SpecError
from trainmaster.plan.spec import load_spec, refuse_what_is_not_built

SPEC = """\
name: small
framework: nanogpt
model: {n_layer: 2, n_head: 2, d_model: 64}
data:
  sources:
    - {name: general, path: /general}
    - {name: medical, path: /medical}
  seq_len: 64
phases:
  - {name: base, steps: 10}
  - {name: last, steps: 20, sources: {general: 0.6, medical: 0.4}}
"""


def refusal(*sets: str) -> SpecError:
    with pytest.raises(SpecError) as refused:
        refuse_what_is_not_built(load_spec(SPEC, sets))
    return refused.value


@pytest.mark.parametrize(
    ("sets", "field", "accepted"),
    [
        (["phases.base.steps=null"], "phases[0]", "steps or tokens"),
        (["phases.base.tokens=9000"], "phases[0]", "steps or tokens"),
        (["phases=[]"], "phases", "1 to 100"),
        (["steps=31"], "phases", "set it to 30"),
        (["tokens=31000"], "phases", "Leave `tokens` out"),
        (["phases.last.name=base"], "phases[1].name", "unique"),
        (["phases.last.name=a.b"], "phases[1].name", "without dots"),
        (["phases.last.sources={general: 0}"], "phases[1].sources", "above 0"),
        (["phases.last.sources={law: 1}"], "phases[1].sources.law", "general, medical"),
        (["phases.last.sources={general: -1}"], "phases[1].sources.general", ">= 0"),
        (["phases.last.seq_len=128"], "phases[1].seq_len", "divisor"),
        (["phases.last.seq_len=48"], "phases[1].seq_len", "divisor"),
        (["phases.last.batch=32"], "phases[1].batch", "at least 64"),
        (["phases.base={name: base, tokens: 10}"], "phases[0].tokens", "at least"),
        (["phases.last.on_miss=rollback"], "phases[1].on_miss", "Give success"),
        (["phases.last.success={metric: bleu, below: 1}"], "phases[1].success.metric", "val_loss"),
        (["phases.last.success={metric: val_loss}"], "phases[1].success", "below"),
        (["phases.last.lr={kind: step, to: 0}"], "phases[1].lr.kind", "linear"),
        (["phases.last.lr={from: 0.1}"], "phases[1].lr.to", "a number"),
        (["phases.last.lr={to: 0, warmup_steps: 30}"], "phases[1].lr.warmup_steps", "at most 20"),
        (["phases.last.batch=8192", "compute.min_nodes=1"], "compute.min_nodes", "Leave it out"),
        (["batch.ramp={from: 0}"], "batch.ramp", "above 0"),
        (["batch.ramp={start: 0.5}"], "batch.ramp.start", "from, over"),
        (["framework=trl", "method=dpo"], "phases", "sft"),
        (["framework=hf", "data.prepare=stream"], "data.prepare", "auto"),
    ],
)  # fmt: skip
def test_phases_that_cannot_be_are_refused_with_what_is_accepted(
    sets: list[str], field: str, accepted: str
) -> None:
    error = refusal(*sets)
    problem = next((each for each in error.problems if each.field == field), None)
    assert problem is not None, error.message
    assert accepted in problem.fix


def test_a_sum_that_agrees_may_stand_beside_the_phases() -> None:
    assert load_spec(SPEC, ["steps=30"]).steps == 30
