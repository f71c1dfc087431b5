"""Values of published recipes by a model's size, where the spec leaves its defaults.

The defaults of the spec suit a first, small training; a model of 50 million parameters and more,
pre-trained from new weights, takes what models of its size were trained with. A table for each
value, from the smallest models on.
"""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.protocol.figures import number_text
from trainmaster.plan.architecture import Architecture, parameters
from trainmaster.plan.architecture_counts import counted
from trainmaster.plan.named_models import NamedModel, find_model
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import ModelSpec, TrainingSpec
from trainmaster.plan.transformers_architectures import whole_config

# From here on a training takes hours on the GPUs it needs.
_LARGE = 50_000_000
# By parameters, from the first on: tokens in a sequence of models that have no published length,
# and tokens of a step.
_SEQ_LEN = ((0, 1024, "Radford et al. 2019 (GPT-2)"), (10**9, 2048, "Brown et al. 2020 (GPT-3)"))
_STEP_TOKENS = (
    (0, 1 << 19, "Brown et al. 2020 (GPT-3), table 2.1"),
    (1_000_000_000, 1 << 20, "Brown et al. 2020 (GPT-3), table 2.1"),
    (6_500_000_000, 1 << 22, "Touvron et al. 2023 (LLaMA), table 2"),
)
# A short training takes smaller steps, so that it has at least so many of them.
_FEWEST_STEPS = 1000
_SMALLEST_STEP = 8192
# By less than this a chosen value is as good as the usual one.
_FACTOR = 4


def with_recipe_values(spec: TrainingSpec, ledger: Ledger | None = None) -> TrainingSpec:
    """The spec with the length of its sequences and the size of its steps, where they are left out
    for a large model that is pre-trained; a value of the user's that is far from the usual one is
    a warning. `ledger`: None to learn the values alone."""
    ledger = ledger or Ledger()
    model = None if spec.model.preset is None else find_model(spec.model.preset)
    count = _size(spec.model, model)
    if spec.continues or spec.script is not None or count is None or count < _LARGE:
        return spec
    seq_len = _seq_len(spec, model, count, ledger)
    tokens = _step_tokens(spec, seq_len, count, ledger)
    changes: dict[str, Any] = {
        "data": spec.data.model_copy(update={"seq_len": seq_len}),
        "batch": spec.batch.model_copy(update={"tokens": tokens}),
    }
    return spec.model_copy(update=changes)


def _seq_len(spec: TrainingSpec, model: NamedModel | None, count: int, ledger: Ledger) -> int:
    usual, source = _row(_SEQ_LEN, count)
    if model is not None:
        usual, source = model.seq_len, model.source
    chosen = spec.data.seq_len
    if "seq_len" in spec.data.model_fields_set:
        if chosen * _FACTOR < usual:
            _warn("data.seq_len", chosen, usual, count, source, ledger)
        return chosen
    if any(phase.seq_len is not None for phase in spec.phases or ()):
        return chosen  # theirs divide it
    step = spec.batch.tokens if "tokens" in spec.batch.model_fields_set else usual
    rows = spec.batch.micro_batch if isinstance(spec.batch.micro_batch, int) else 1
    seq_len = max(chosen, min(usual, step // rows))
    what = "The model's own" if model is not None else "What is usual"
    reason = f"{what} in pre-training, {_of(count)}."
    ledger.decide("data.seq_len", seq_len, reason, source)
    return seq_len


def _step_tokens(spec: TrainingSpec, seq_len: int, count: int, ledger: Ledger) -> int:
    usual, source = _row(_STEP_TOKENS, count)
    chosen = spec.batch.tokens
    if "tokens" in spec.batch.model_fields_set:
        if chosen * _FACTOR < usual or chosen > _FACTOR * usual:
            _warn("batch.tokens", chosen, usual, count, source, ledger)
        return chosen
    tokens, reason = usual, f"As published models of this size, {_of(count)}."
    whole = spec.tokens if isinstance(spec.tokens, int) else None
    while whole is not None and tokens * _FEWEST_STEPS > whole and tokens > _SMALLEST_STEP:
        tokens //= 2
        reason = f"At least {_FEWEST_STEPS:,} steps; usual are {usual:,}, {_of(count)}."
    rows = spec.batch.micro_batch if isinstance(spec.batch.micro_batch, int) else 1
    tokens = max(tokens, rows * seq_len)
    ledger.decide("batch.tokens", tokens, reason, source)
    return tokens


def _row(table: tuple[tuple[int, int, str], ...], count: int) -> tuple[int, str]:
    return next((value, source) for least, value, source in reversed(table) if count >= least)


def _warn(field: str, chosen: int, usual: int, count: int, source: str, ledger: Ledger) -> None:
    ledger.warn(
        f"{field} is {chosen:,}; {_of(count)} {usual:,} are usual ({source}). The published "
        "learning rates and results are for that."
    )


def _of(count: int) -> str:
    return f"with {number_text(round(count / 1e6))}M parameters"


def _size(model: ModelSpec, named: NamedModel | None) -> int | None:
    """About how many parameters the model will have, before its vocabulary is known."""
    if named is not None:
        return named.parameters
    if model.arch is not None:
        measured = counted(model.arch, whole_config(model.arch, model.config), 1)
        return None if measured is None else measured[2]
    if model.n_layer is None or model.n_head is None or model.d_model is None:
        return None
    style = "gpt2" if model.style == "auto" else model.style
    d_ff = model.d_ff or (4 if style != "llama" else 8 / 3) * model.d_model
    n_kv_head = model.n_kv_head or model.n_head
    sizes = (model.n_layer, model.n_head, n_kv_head, model.d_model, round(d_ff))
    return parameters(Architecture(style, *sizes, model.vocab_size or 0, 1))
