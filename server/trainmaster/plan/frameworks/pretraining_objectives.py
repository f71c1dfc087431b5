"""What a spec can't combine with an objective other than causal."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.config.objectives import CAUSAL, MASK_SHARE, OBJECTIVES
from trainer_runtime.core.frameworks import framework_of
from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.document import TrainingSpec


def objective_refusals(spec: TrainingSpec) -> Iterator[Problem]:
    """Fields that the objective has no use for."""
    objective = spec.objective
    if not framework_of(spec.framework).pretrains:
        return  # its record refuses all others
    if objective == CAUSAL:
        if MASK_SHARE in spec.method_args:
            yield wrong_value(
                f"method_args.{MASK_SHARE}",
                "is given, but a causal model predicts every token.",
                "Remove it, or set objective to masked or denoising.",
            )
        return
    if not spec.continues and spec.model.arch is None:
        named = ", ".join(OBJECTIVES[objective].architectures)
        yield wrong_value(
            "objective",
            f"is {objective}, but the model is a decoder.",
            f"Give model.arch, one of {named}, with model.config; or model.path or model.hub.",
        )
    for field, is_given, lack in (
        ("data.prepare", spec.data.prepare == "stream", "sequences of prepared shards alone"),
        ("data.document_masks", spec.data.document_masks, "whole sequences"),
        ("compute.loss", spec.compute.loss != "whole", "the loss of whole logits"),
        ("eval.samples", spec.eval.samples is not None, "no text to write"),
        ("tokens", spec.tokens == "auto", "no rule for how many tokens a model learns from"),
    ):
        if is_given:
            yield wrong_value(
                field,
                f"is given, but `objective` {objective} has {lack}.",
                "Give steps or a number of tokens." if field == "tokens" else "Leave it out.",
            )
