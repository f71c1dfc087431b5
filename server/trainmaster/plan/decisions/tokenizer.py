"""Chooses the tokenizer."""

from __future__ import annotations

from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.spec import TrainingSpec

BYTE, NONE = "byte", "none"
# Of weights that the spec does not name.
OWN = "the model's own"


def chosen_tokenizer(spec: TrainingSpec) -> str:
    """`byte`, `none`, or the folder or hub name of a tokenizer as the spec gives it.

    auto is the tokenizer of the existing weights, since their embedding fits no other one; none for
    ready tokens of a vocabulary whose size is given; byte for another new model.
    """
    if spec.data.tokenizer != "auto":
        return spec.data.tokenizer
    if framework_of(spec).trains_without_tokenizer and _is_ready(spec):
        return NONE
    return spec.model.path or spec.model.hub or (OWN if spec.lacks_weights else BYTE)


def _is_ready(spec: TrainingSpec) -> bool:
    size = spec.model.vocab_size or spec.model.preset
    return size is not None and spec.data.formats == {"tokens"}
