"""What is learnt: the method, its own arguments, and the form in which it reads its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trainmaster.plan.architecture import TRAINING_PASSES
from trainmaster.plan.frameworks import framework_of, method_of
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

Form = Literal["shards", "stream", "dataset"]

# What a run calls the file with the rewards, in its own folder.
REWARD_FILE = "reward.py"
# Methods that hold a frozen copy of the model beside the one that is trained.
_WITH_REFERENCE = ("dpo", "kto")
# Methods of which an example is two sequences: the better and the worse, or a pair to compare with.
_OF_PAIRS = ("dpo", "kto", "reward")


@dataclass(frozen=True, slots=True)
class Method:
    """`name` is resolved; `arguments` with every default; `form` is how data reaches the trainer:
    packed token shards, a stream of texts, or rows of a data set. `has_adapter`: the model's own
    weights are frozen."""

    name: str
    arguments: dict[str, Any]
    form: Form
    has_adapter: bool = False

    @property
    def passes(self) -> int:
        """The cost of a token in forward passes, were no weights frozen: a reference model
        processes every token as well."""
        return TRAINING_PASSES + self.has_reference

    @property
    def has_reference(self) -> bool:
        """Whether a frozen copy of the model stands by, unless an adapter can be taken off it."""
        return self.name in _WITH_REFERENCE or bool(self.arguments.get("beta"))

    @property
    def sequences(self) -> int:
        """Sequences of one example."""
        return 2 if self.name in _OF_PAIRS else 1

    @property
    def least(self) -> int:
        """Examples that have to go through at once: KTO compares those of a micro-batch."""
        return 2 if self.name == "kto" else 1

    @property
    def group(self) -> int:
        """Of how many examples a step consists at least: completions are compared in groups."""
        return int(self.arguments["num_generations"]) if self.name == "grpo" else 1


def choose_method(spec: TrainingSpec, ledger: Ledger) -> Method:
    """The method that the spec names, or the framework's usual one, with all its arguments."""
    name = method_of(spec)
    if spec.method == "auto":
        ledger.decide("method", name, f"What {spec.framework} does.")
    return Method(name, _arguments(spec, name, ledger), form_of(spec), spec.adapter is not None)


def form_of(spec: TrainingSpec) -> Form:
    """How the data reaches the trainer."""
    if method_of(spec) != "pretrain":
        return "dataset"
    return "stream" if spec.data.prepare == "stream" else "shards"


def _arguments(spec: TrainingSpec, method: str, ledger: Ledger) -> dict[str, Any]:
    """With defaults, but without the length, which becomes steps, and with what is left out left
    to the framework."""
    arguments = {}
    for name, argument in framework_of(spec).arguments.get(method, {}).items():
        value = spec.method_args.get(name)
        if value is None and name != "epochs":
            value = _default(spec, name, argument.default, ledger)
        if value is not None and name != "epochs":
            arguments[name] = value
    if "reward_file" in arguments:
        arguments["reward_file"] = REWARD_FILE
    return arguments


def _default(spec: TrainingSpec, name: str, usual: Any, ledger: Ledger) -> Any:
    if name == "packing":
        packs = all(source.format == "text" for source in spec.data.sources) and not spec.phases
        reason = (
            "Plain texts may follow each other."
            if packs
            else "Each step has equally many examples; true packs whole ones, kept apart."
        )
        ledger.decide("method_args.packing", packs, reason)
        return packs
    if name == "max_completion_length":
        length = max(1, spec.data.seq_len // 2)
        reason = "Half of data.seq_len; the other half is for the prompt."
        ledger.decide("method_args.max_completion_length", length, reason)
        return length
    return None if usual is ... else usual
