"""Which tokenizer reads the texts."""

from __future__ import annotations

from trainmaster.plan.spec import TrainingSpec

BYTE = "byte"


def chosen_tokenizer(spec: TrainingSpec) -> str:
    """`byte`, or the folder or hub name of a tokenizer as the spec gives it.

    auto is the one of the existing weights that the training continues from, for which alone their
    embedding means something; byte for a model that is made anew.
    """
    if spec.data.tokenizer != "auto":
        return spec.data.tokenizer
    return spec.model.path or spec.model.hub or BYTE
