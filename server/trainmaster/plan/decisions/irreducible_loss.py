"""Warns of a target that is below the loss which a model of a size reaches on so many tokens."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.alerts.condition import ConditionError, MetricCondition, parse_condition
from trainer_runtime.core.protocol.figures import number_text, rounded
from trainmaster.plan.decisions.model import Network
from trainmaster.plan.decisions.recipes import LARGE
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_LOSSES = ("loss", "val_loss")
# Tokens of other vocabularies hold more or less text; below are bytes and toys.
_LEAST_VOCABULARY = 16_000
# The fit is of MassiveText; other web texts differ by less than this.
_MARGIN = 0.9


def warn_of_unreachable_loss(
    spec: TrainingSpec, network: Network, tokens: int, vocabulary: int | None, ledger: Ledger
) -> None:
    """Warn where an alert or a phase's success waits for a loss below the fit's, of large models
    that are pre-trained from new weights.

    `vocabulary`: the tokenizer's, by which a token holds more or less text; None where it is not
    known, and the model's counts.
    """
    count = network.parameters
    if vocabulary is None:
        shape = network.architecture
        vocabulary = (network.sizes.get("vocab_size") or 0) if shape is None else shape.vocab_size
    if spec.continues or count is None or count < LARGE or vocabulary < _LEAST_VOCABULARY:
        return
    reached = expected_loss(count, tokens)
    for field, target in _targets(spec):
        if target < _MARGIN * reached:
            ledger.warn(
                f"{field} waits for a loss below {target:g}; {count:,} parameters on {tokens:,} "
                f"tokens of web text reach about {number_text(rounded(reached, 3))} "
                "(Hoffmann et al. 2022, approach 3), and no model goes "
                "below 1.69 there. Code is lower, and so are texts read again."
            )


def expected_loss(parameters: int, tokens: int) -> float:
    """Nats a token of web text: 1.69 + 406.4 N^-0.34 + 410.7 D^-0.28.

    Source: Hoffmann et al. 2022 (arXiv 2203.15556), equation 10.
    """
    return float(1.69 + 406.4 * parameters**-0.34 + 410.7 * tokens**-0.28)


def _targets(spec: TrainingSpec) -> Iterator[tuple[str, float]]:
    for index, alert in enumerate(spec.alerts):
        try:
            condition = parse_condition(alert.when)
        except ConditionError:
            continue  # refused elsewhere
        if not isinstance(condition, MetricCondition) or condition.key not in _LOSSES:
            continue
        if condition.comparison in ("<", "<="):
            yield f"alerts[{index}].when", condition.limit
    for phase in spec.phases or ():
        success = phase.success
        if success is not None and success.metric in _LOSSES and success.below is not None:
            yield f"phases.{phase.name}.success", success.below
