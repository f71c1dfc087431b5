"""How often a large model is evaluated, and on how much: by tokens, by time and by the length."""

from __future__ import annotations

from typing import Any

from trainmaster.plan.decisions.estimate import HOUR_S
from trainmaster.plan.decisions.hyperparameters import Batch
from trainmaster.plan.decisions.recipes import Recipe
from trainmaster.plan.decisions.throughput import Throughput
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

# nanoGPT evaluates every 2,000 steps of 491,520 tokens, Pythia and OLMo save every 1,000 of 2M and
# 4M: every billion tokens or few.
_TOKENS_BETWEEN = 1_000_000_000
_HOURS_BETWEEN = 4.0
_SHARE_BETWEEN = 0.01
_FEWEST_STEPS_BETWEEN = 10
# Of validation; the loss of as many is steady to about a thousandth. nanoGPT takes 2.4M. Less where
# evaluation, a third of the arithmetic, would take over a hundredth of the time.
_TOKENS_EVALUATED = 1 << 20
_SHARE_EVALUATED = 0.03
_SOURCE = "Karpathy 2022 (nanoGPT); Biderman et al. 2023 (Pythia); Groeneveld et al. 2024 (OLMo)"


def with_evaluation_cadence(
    spec: TrainingSpec,
    recipe: Recipe | None,
    batch: Batch,
    steps: int,
    speed: Throughput | None,
    ledger: Ledger,
) -> TrainingSpec:
    """The spec of a large model that is pre-trained with its evaluations, where left out: at every
    billion tokens, hundredth of the training or four hours, whichever comes first."""
    if recipe is None or recipe.is_tuning:
        return spec
    usual, changes = spec.eval, dict[str, Any]()
    every = usual.every_steps
    if "every_steps" not in usual.model_fields_set:
        every, bound = _steps_between(usual.every_steps, batch.tokens, steps, speed)
        ledger.decide("eval.every_steps", every, f"About {bound}.", _SOURCE)
        changes["every_steps"] = every
    if "batches" not in usual.model_fields_set:
        tokens = batch.micro_batch * batch.seq_len
        wanted = min(_TOKENS_EVALUATED, _SHARE_EVALUATED * every * batch.tokens)
        batches = max(usual.batches, int(wanted / tokens))
        reason = f"{batches * tokens:,} tokens of each source, within a hundredth of the time."
        ledger.decide("eval.batches", batches, reason, _SOURCE)
        changes["batches"] = batches
    return spec.model_copy(update={"eval": usual.model_copy(update=changes)})


def _steps_between(
    default: int, step_tokens: int, steps: int, speed: Throughput | None
) -> tuple[int, str]:
    most, bound = min(
        (_TOKENS_BETWEEN / step_tokens, "a billion tokens"),
        (_SHARE_BETWEEN * steps, "a hundredth of the training"),
    )
    if most < default:
        most, bound = default, f"{default} steps, which show a curve in short trainings too"
    if speed is not None:
        step_s = step_tokens / speed.tokens_per_s
        most, bound = min(
            (most, bound), (_HOURS_BETWEEN * HOUR_S / step_s, f"{_HOURS_BETWEEN:g} hours")
        )
    return max(_FEWEST_STEPS_BETWEEN, _rounded_down(most)), bound


def _rounded_down(steps: float) -> int:
    """To two digits, as people count steps."""
    whole = max(1, int(steps))
    unit = int(10 ** max(0, len(str(whole)) - 2))
    return whole // unit * unit
