"""Chooses the tokenizer."""

from __future__ import annotations

from trainmaster.plan.spec import TrainingSpec

BYTE = "byte"


def chosen_tokenizer(spec: TrainingSpec) -> str:
    """`byte`, or the folder or hub name of a tokenizer as the spec gives it.

    auto is the tokenizer of the existing weights, since their embedding fits no other one; byte for
    a new model.
    """
    if spec.data.tokenizer != "auto":
        return spec.data.tokenizer
    return spec.model.path or spec.model.hub or BYTE
