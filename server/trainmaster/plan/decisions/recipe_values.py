"""Puts what published trainings took in the place of the spec's defaults, and warns of departures.

The defaults of the spec suit a first, small training; a model of 50 million parameters and more
takes the values of its recipe (`recipes`), which go by its size, what it learns and how.
"""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.config.lr_schedule import RANGE_TEST
from trainer_runtime.core.config.objectives import CAUSAL
from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainer_runtime.core.files.corpus import VALIDATION_SHARE
from trainer_runtime.core.protocol.figures import number_text, share_text
from trainmaster.plan.architecture import Architecture, Experts, parameters
from trainmaster.plan.architecture_counts import counted
from trainmaster.plan.corpus_facts import CorpusFacts
from trainmaster.plan.decisions.recipes import LARGE, Recipe, Usual, recipe_of
from trainmaster.plan.facts import ModelFacts
from trainmaster.plan.named_models import NamedModel, find_model
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import ModelSpec, TrainingSpec
from trainmaster.plan.transformers_architectures import whole_config

# A short training takes smaller steps, so that it has at least so many of them; a tuned model in
# each pass over its examples, down to the smallest published step.
FEWEST_STEPS, _FEWEST_STEPS_OF_PASS = 1000, 50
SMALLEST_STEP, _FEWEST_SEQUENCES = 8192, 16
# Of those that train: below, `length` decides by how many there are.
_MANY_EXAMPLES = 10_000
# By less than this a chosen value is as good as the usual one.
_FACTOR = 4
# Continued pre-training goes no further than most pre-training did.
_LONGEST_CONTINUED = 4096


def with_recipe_values(
    spec: TrainingSpec,
    model: ModelFacts | None = None,
    corpus: CorpusFacts | None = None,
    ledger: Ledger | None = None,
) -> TrainingSpec:
    """The spec of a large model with the length of its sequences and the size of its steps, where
    they are left out; a value of the user's that is far from the usual one is a warning. A small
    model's step that is left out holds at least a micro-batch.

    `model`: the weights that it continues from. The length goes by nothing of the corpus, whose
    cache has it in its name. `ledger`: None to learn the values alone.
    """
    ledger = ledger or Ledger()
    recipe = find_recipe(spec, model)
    if recipe is None:
        return _with_whole_step(spec, ledger)
    named = _named(spec.model)
    seq_len = _seq_len(spec, recipe, named, model, ledger)
    if recipe.is_tuning:
        tokens = _tuning_tokens(spec, recipe, seq_len, corpus, ledger)
    else:
        tokens = _step_tokens(spec, recipe, seq_len, ledger)
    changes: dict[str, Any] = {
        "data": spec.data.model_copy(update={"seq_len": seq_len}),
        "batch": spec.batch.model_copy(update={"tokens": tokens}),
    }
    return _with_epochs(spec.model_copy(update=changes), recipe, corpus, ledger)


def with_recipe_training(
    spec: TrainingSpec, model: ModelFacts | None, ledger: Ledger
) -> TrainingSpec:
    """The spec of a large model with its recipe's optimizer and schedule; `spec` names the
    optimizer. What departs from the recipe is a warning."""
    recipe = find_recipe(spec, model)
    if recipe is None or spec.schedule.kind == RANGE_TEST:
        return spec
    values: dict[str, dict[str, Any]] = {"optimizer": {}, "schedule": {}}
    for row in recipe.rows():
        section, _, name = row.field.partition(".")
        if section == "method_args":
            _check_argument(spec, row, recipe, ledger)
            continue
        if section not in values or name in ("lr", "warmup_share") or not _is_for(spec, row):
            continue
        fields = getattr(spec, section)
        if name in fields.model_fields_set and getattr(fields, name) != "auto":
            _warn_of_departure(row, getattr(fields, name), recipe, ledger)
            continue
        value, of_optimizer = _of_optimizer(spec, row)
        values[section][name] = value
        ledger.decide(row.field, value, _reason(recipe), f"{row.source}{of_optimizer}")
    changes = {name: getattr(spec, name).model_copy(update=of) for name, of in values.items()}
    return spec.model_copy(update=changes)


def find_recipe(spec: TrainingSpec, model: ModelFacts | None) -> Recipe | None:
    """The recipe of a spec; None for small models, and those of unknown size or not causal."""
    if spec.script is not None or spec.objective != CAUSAL:
        return None
    named = _named(spec.model)
    size, experts, d_model = _size(spec.model, named)
    if spec.continues and model is not None and model.parameters is not None:
        size, experts, d_model = model.parameters, model.experts, model.d_model or 0
    if size is None or size < LARGE:
        return None
    return recipe_of(spec, size, experts, d_model)


def warn_of_warmup(spec: TrainingSpec, recipe: Recipe | None, steps: int, ledger: Ledger) -> None:
    """Warn where the spec's own warm-up is none, or most of the training."""
    own = spec.schedule.warmup_steps
    row = None if recipe is None else recipe.usual("schedule.warmup_share")
    if recipe is None or row is None or not isinstance(own, int) or spec.phases:
        return
    share = own / max(1, steps)
    if _departs(row, share):
        usual = f"{share_text(row.value)} of the steps"
        ledger.warn(_departure("schedule.warmup_steps", f"{own:,}", usual, row, recipe))


def _named(model: ModelSpec) -> NamedModel | None:
    name = model.preset or model.hub
    return None if name is None else find_model(name)


def _is_for(spec: TrainingSpec, row: Usual) -> bool:
    """Whether the optimizer has the field as AdamW has it."""
    record, adamw = OPTIMIZERS[spec.optimizer.name], OPTIMIZERS["adamw"]
    if row.field == "optimizer.betas":
        return record.betas == adamw.betas
    if row.field == "optimizer.weight_decay":
        return record.usual_decay == adamw.decay
    if row.field == "optimizer.grad_clip":
        return spec.optimizer.clip == "norm"
    return not record.averages  # which decay no rate


def _of_optimizer(spec: TrainingSpec, row: Usual) -> tuple[Any, str]:
    """The row's value for the spec's optimizer: Lion's rate is lower, its decay as much higher."""
    record = OPTIMIZERS[spec.optimizer.name]
    if row.field == "optimizer.weight_decay" and spec.optimizer.name == "lion" and record.rate:
        return row.value / record.rate, f"; {record.rate_source}"
    return row.value, ""


def _with_epochs(
    spec: TrainingSpec, recipe: Recipe, corpus: CorpusFacts | None, ledger: Ledger
) -> TrainingSpec:
    """With the recipe's passes for `auto`, which few examples take more often."""
    row = recipe.usual("method_args.epochs")
    if row is None or corpus is None or spec.method_args.get("epochs") != "auto":
        return spec
    share = 1.0 if corpus.validation else 1 - VALIDATION_SHARE
    if round(share * corpus.examples) < _MANY_EXAMPLES:
        return spec
    ledger.decide(row.field, row.value, _reason(recipe), row.source)
    arguments = {**spec.method_args, "epochs": row.value}
    return spec.model_copy(update={"method_args": arguments})


def _check_argument(spec: TrainingSpec, row: Usual, recipe: Recipe, ledger: Ledger) -> None:
    own = spec.method_args.get(row.field.partition(".")[2])
    if isinstance(own, int | float):
        _warn_of_departure(row, own, recipe, ledger)


def _seq_len(
    spec: TrainingSpec,
    recipe: Recipe,
    named: NamedModel | None,
    model: ModelFacts | None,
    ledger: Ledger,
) -> int:
    row = recipe.usual("data.seq_len")
    if row is None:
        return spec.data.seq_len
    usual, source = int(row.value), row.source
    what = "What is usual in tuning" if recipe.is_tuning else "What is usual in pre-training"
    positions = model.max_positions if model is not None else None
    if named is not None and not recipe.is_tuning:
        usual, source, what = named.seq_len, named.source, "The model's own in pre-training"
    elif spec.continues and positions is not None and not recipe.is_tuning:
        usual, what = min(positions, _LONGEST_CONTINUED), "By the model's positions"
    if recipe.is_tuning and positions is not None and positions < usual:
        usual, what = positions, "As many as the model's positions"
    chosen = spec.data.seq_len
    if "seq_len" in spec.data.model_fields_set:
        if chosen * _FACTOR < usual and not recipe.is_tuning:
            _warn(row.field, chosen, usual, recipe, source, ledger)
        return chosen
    if any(phase.seq_len is not None for phase in spec.phases or ()):
        return chosen  # theirs divide it
    if "tokens" in spec.batch.model_fields_set:
        usual = min(usual, spec.batch.tokens // _rows(spec))
    seq_len = max(chosen, usual)
    full = " Time is planned as if each row had as many." if recipe.is_tuning else ""
    ledger.decide(row.field, seq_len, f"{what}, {_of(recipe)}.{full}", source)
    return seq_len


def _with_whole_step(spec: TrainingSpec, ledger: Ledger) -> TrainingSpec:
    """With a step that holds a micro-batch, where its size is left out."""
    tokens = spec.step_tokens
    if spec.script is not None or tokens == spec.batch.tokens:
        return spec
    sequences = tokens // spec.data.seq_len
    reason = f"A micro-batch of {sequences:,}, more than the usual {spec.batch.tokens:,} tokens."
    ledger.decide("batch.tokens", tokens, reason)
    return spec.model_copy(update={"batch": spec.batch.model_copy(update={"tokens": tokens})})


def _step_tokens(spec: TrainingSpec, recipe: Recipe, seq_len: int, ledger: Ledger) -> int:
    row = recipe.usual("batch.tokens")
    chosen = spec.batch.tokens
    if row is None:
        return chosen
    usual = int(row.value)
    if "tokens" in spec.batch.model_fields_set:
        if chosen * _FACTOR < usual or chosen > _FACTOR * usual:
            _warn(row.field, chosen, usual, recipe, row.source, ledger)
        return chosen
    tokens, reason = usual, f"As published models of this size, {_of(recipe)}."
    whole = spec.tokens if isinstance(spec.tokens, int) else None
    while whole is not None and tokens * FEWEST_STEPS > whole and tokens > SMALLEST_STEP:
        tokens //= 2
        reason = f"At least {FEWEST_STEPS:,} steps; usual are {usual:,}, {_of(recipe)}."
    tokens = max(tokens, _rows(spec) * seq_len)
    ledger.decide(row.field, tokens, reason, row.source)
    return tokens


def _tuning_tokens(
    spec: TrainingSpec, recipe: Recipe, seq_len: int, corpus: CorpusFacts | None, ledger: Ledger
) -> int:
    row = recipe.usual("batch.sequences")
    if row is None:
        return spec.batch.tokens
    if "tokens" in spec.batch.model_fields_set:
        sequences = spec.batch.tokens // seq_len
        if _departs(row, sequences):
            usual = f"{row.value} sequences ({row.value * seq_len:,})"
            ledger.warn(_departure("batch.tokens", f"{sequences:,} sequences", usual, row, recipe))
        return spec.batch.tokens
    sequences, reason = int(row.value), f"{row.value} sequences, as is usual {_of(recipe)}."
    examples = 0 if corpus is None or spec.steps is not None else corpus.examples
    while sequences > _FEWEST_SEQUENCES and 0 < examples < _FEWEST_STEPS_OF_PASS * sequences:
        sequences //= 2
        reason = (
            f"{sequences} sequences, for {_FEWEST_STEPS_OF_PASS} steps in a pass over "
            f"{examples:,} examples; usual are {row.value}."
        )
    sequences = max(sequences, _rows(spec))
    ledger.decide("batch.tokens", sequences * seq_len, reason, row.source)
    return sequences * seq_len


def _rows(spec: TrainingSpec) -> int:
    return spec.batch.micro_batch if isinstance(spec.batch.micro_batch, int) else 1


def _warn(field: str, chosen: int, usual: int, recipe: Recipe, source: str, ledger: Ledger) -> None:
    ledger.warn(
        f"{field} is {chosen:,}; {_of(recipe)} {usual:,} are usual ({source}). The published "
        "learning rates and results are for that."
    )


def _warn_of_departure(row: Usual, chosen: Any, recipe: Recipe, ledger: Ledger) -> None:
    measured = chosen[-1] if isinstance(chosen, list) else chosen
    if _departs(row, measured):
        ledger.warn(_departure(row.field, _shown(chosen), _shown(row.value), row, recipe))


def _departs(row: Usual, chosen: Any) -> bool:
    if isinstance(chosen, str):
        return chosen in row.unusual
    too_low = row.low is not None and chosen < row.low
    return too_low or (row.high is not None and chosen > row.high)


def _departure(field: str, chosen: str, usual: str, row: Usual, recipe: Recipe) -> str:
    why = f": {row.why}" if row.why else ""
    return f"{field} is {chosen}; {_of(recipe)} {usual} is usual ({row.source}){why}."


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(_shown(part) for part in value)
    return value if isinstance(value, str) else f"{value:g}"


def _reason(recipe: Recipe) -> str:
    return f"Usual in {'tuning' if recipe.is_tuning else 'pre-training'} {_of(recipe)}."


def _of(recipe: Recipe) -> str:
    return f"with {number_text(round(recipe.size / 1e6))}M {recipe.counted}"


def _size(model: ModelSpec, named: NamedModel | None) -> tuple[int | None, Experts | None, int]:
    """About how many parameters the model will have, before its vocabulary is known; its experts,
    and its width."""
    arch, words = model.arch, model.config
    if named is not None:
        arch, words = named.arch, named.in_words_of_transformers()
    measured = None if arch is None else counted(arch, whole_config(arch, words), 1)
    if measured is None:
        size = _of_sizes(model) if named is None else named.parameters
        return size, None, 0
    shape, _, count = measured
    return count if named is None else named.parameters, shape.experts, shape.d_model


def _of_sizes(model: ModelSpec) -> int | None:
    if model.n_layer is None or model.n_head is None or model.d_model is None:
        return None
    style = "gpt2" if model.style == "auto" else model.style
    d_ff = model.d_ff or (4 if style != "llama" else 8 / 3) * model.d_model
    n_kv_head = model.n_kv_head or model.n_head
    sizes = (model.n_layer, model.n_head, n_kv_head, model.d_model, round(d_ff))
    return parameters(Architecture(style, *sizes, model.vocab_size or 0, 1))
