"""What is learnt: the method, its own arguments, and the form in which it reads its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trainmaster.plan.result import Ledger
from trainmaster.spec import TrainingSpec

Form = Literal["shards", "stream", "dataset"]


@dataclass(frozen=True, slots=True)
class Method:
    """`name` is resolved; `arguments` with every default; `form` is how data reaches the trainer:
    packed token shards, a stream of texts, or rows of a data set."""

    name: str
    arguments: dict[str, Any]
    form: Form


def choose_method(spec: TrainingSpec, ledger: Ledger) -> Method:
    """The method that the spec names, or the framework's usual one."""
    name = resolved_method(spec)
    if spec.method == "auto":
        ledger.decide("method", name, f"What {spec.framework} does.")
    return Method(name, dict(spec.method_args), form_of(spec))


def resolved_method(spec: TrainingSpec) -> str:
    """The spec's method; for auto what its framework does."""
    if spec.method != "auto":
        return spec.method
    return "sft" if spec.framework == "trl" else "pretrain"


def form_of(spec: TrainingSpec) -> Form:
    """How the data reaches the trainer."""
    if resolved_method(spec) != "pretrain":
        return "dataset"
    return "stream" if spec.data.prepare == "stream" else "shards"
