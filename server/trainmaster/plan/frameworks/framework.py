"""What planning knows of a framework: one record each, in the module of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.frameworks import FrameworkName
from trainmaster.errors.errors import Problem
from trainmaster.plan.architecture import Style
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.field_tree import Field
from trainmaster.plan.fields.place import Place, nowhere, place
from trainmaster.plan.frameworks.arguments import Argument
from trainmaster.plan.frameworks.packages import Package
from trainmaster.plan.named_models import NamedModel

_ITEMS = "[]"


def no_refusals(_: TrainingSpec) -> Iterator[Problem]:
    """Nothing beside what the fields' places refuse."""
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One framework, or the programs that are run as they are.

    Fields of a spec:
    `places`: by path. What they don't name is where `Annotation.acts` says; members of a section
    without a place have none; all others have `otherwise`.
    `refusals`: what it can't do although it has a place for each of the fields.
    `runs_program`: it runs `script`, and has no model, data or length of ours.
    `is_single_process`: it has no launcher, and neither methods nor adapters nor loggers.

    Methods: `usual_method` is what `auto` means; `arguments`: of `method_args`, by method;
    `tiled_methods`: those that score tokens by tiles of the output layer, and never hold logits.

    Models:
    `usual_style`: what `model.style: auto` means, with its reason where it isn't the usual one.
    `has_modern`: that style, which `auto` then takes for new models.
    `has_biases`, `has_rotary_gpt2`: see `Architecture`. `builds`: whether it has a published shape
    by its name; `own_names`: of further models that it has by names of its own. `layouts`: of
    folders with weights that it reads (`ModelFacts.kind`), and what turns each into one of
    transformers.
    `trains_without_tokenizer`: on ready tokens.

    Adapters: `has_own_adapters`: without PEFT. `adapter_matrices`: the names that
    `adapter.targets` takes, and `usual_adapter_targets` what auto means; None: the model's own.
    `nf4_bits`: of a frozen weight with its constants, which some quantize again.

    Processes: `strategies` and `adapter_strategies`: those that `auto` tries over several GPUs,
    the least communication first. `can_recompute`: activations in the backward pass. `can_trace`:
    its steps can be computed on tensors without data, for their memory.

    Its environment: `packages` that are installed, `packages_gib` unpacked with all they bring.
    `loggers`: the options of each, by name; `loggers_at_once`: None for any number.

    Its habits: `keeps_attention_scores`: on CPUs, in short sequences. `is_deterministic`: at no
    cost to speak of. `exports`: final models that it writes. `unrecorded`: what about a resolved
    config's data its output folders don't record, as warnings.
    """

    name: FrameworkName
    places: Mapping[str, str | Place]
    otherwise: Place | None = None
    refusals: Callable[[TrainingSpec], Iterator[Problem]] = no_refusals
    runs_program: bool = False
    is_single_process: bool = False
    usual_method: str = "pretrain"
    arguments: Mapping[str, Mapping[str, Argument]] = field(default_factory=dict)
    tiled_methods: frozenset[str] = frozenset()
    usual_style: tuple[Style, str | None] = ("gpt2", None)
    has_modern: bool = False
    has_biases: bool = False
    has_rotary_gpt2: bool = False
    builds: Callable[[NamedModel], bool] = lambda _: True
    own_names: frozenset[str] = frozenset()
    layouts: Mapping[str, str] = field(default_factory=lambda: {"hf": "save_pretrained"})
    trains_without_tokenizer: bool = False
    has_own_adapters: bool = False
    # Dettmers et al. 2023 (QLoRA, arXiv 2305.14314), section 3: constants quantized twice.
    nf4_bits: float = 4.127
    adapter_matrices: tuple[str, ...] | None = None
    usual_adapter_targets: tuple[str, ...] | None = None
    strategies: tuple[str, ...] = ("single",)
    adapter_strategies: tuple[str, ...] = ("single",)
    can_recompute: bool = True
    can_trace: bool = False
    packages: tuple[Package, ...] = ()
    packages_gib: float = 0.0
    loggers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    loggers_at_once: int | None = None
    keeps_attention_scores: bool = False
    is_deterministic: bool = False
    exports: int = 1
    unrecorded: Callable[[Mapping[str, Any]], Iterable[str]] = lambda _: ()

    def place_of(self, field: Field) -> Place:
        """Where it puts the value of a field.

        Raises:
            LookupError: the record says nothing about the field.
        """
        own = self.places.get(field.path, field.annotation.acts)
        if own is not None:
            return place(own)
        section = field.path.rpartition(".")[0].removesuffix(_ITEMS)
        above = self.places.get(section)
        if above is not None and not place(above).where:
            return nowhere(f"see `{section}`")
        if self.otherwise is None:
            raise LookupError(f"the record of {self.name} has no place for {field.path}")
        return self.otherwise
