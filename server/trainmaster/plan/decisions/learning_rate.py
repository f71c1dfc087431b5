"""The learning rate: by the model's size for a new model, by the method for fine-tuning."""

from __future__ import annotations

from trainer_runtime.core.config.lr_schedule import RANGE_TEST
from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainer_runtime.core.protocol.figures import number_text, rounded
from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.hyperparameters import learning_rate, rate_by_batch, usual_batch
from trainmaster.plan.decisions.method import Method
from trainmaster.plan.decisions.model import Network
from trainmaster.plan.decisions.recipes import (
    DEEPSEEK_SOURCE,
    LARGE,
    Recipe,
    deepseek_rate,
    deepseek_step_tokens,
    recipe_of,
)
from trainmaster.plan.decisions.style_and_optimizer import RATE, RATE_SOURCE, is_modern_by_muon
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_FAR_TOO_HIGH = 10
# Published rates of one size differ by less than this: of 7B models 1.2e-4 (GPT-3, MPT) to 4.2e-4
# (DeepSeek), of 13B 1e-4 to 9e-4 (OLMo 2).
_FAR_FROM_PUBLISHED = 5
_FAR_TOO_LOW_TO_TUNE = 20
# The share of the rate from scratch for a model that continues from weights.
_REWARMED_SHARE = 0.1
# Assumed if the size is unknown: its rate is safe for smaller models too.
_UNKNOWN_PARAMETERS = 1_000_000_000
_NOT_TUNED = "the method's usual rate would hardly move them"
_CONTINUED_SOURCE = "Ibrahim et al. 2024 (arXiv 2403.08763), section 6"
# Methods that presume a model which can already answer.
_ALIGNING = ("dpo", "kto", "grpo")


def choose_learning_rate(
    spec: TrainingSpec, method: Method, network: Network, tokens: int, ledger: Ledger
) -> float:
    """The highest rate of the schedule; one that is given is held against what auto would take.
    `tokens`: of the whole training.

    Raises:
        PlanError: INVALID_VALUE, none is given, and auto has none for the optimizer.
    """
    rate, reason, source = _rate(spec, method, network)
    if method.name == "pretrain" and spec.continues and len(spec.data.sources) == 1:
        ledger.warn(
            "Training on makes a model forget what the new texts don't hold. Some of the kind that "
            "it was trained on before, mixed in as a source with a weight of a few percent, keeps "
            "most of it (Ibrahim et al. 2024)."
        )
    if method.name in _ALIGNING and not spec.continues:
        ledger.warn(
            f"{method.name} aligns a model that can already answer, and this one begins with "
            "random weights: good to try the method out, for little else. Give model.path or "
            "model.hub."
        )
    usual = _of_optimizer(spec, rate)
    own_rate = spec.optimizer.lr
    if not isinstance(own_rate, float | int):
        if usual is None:
            raise _no_rate(spec.optimizer.name, rate)
        ratio, of_optimizer = _ratio(spec) or (1.0, "")
        if ratio != 1.0:
            reason += f" {spec.optimizer.name} takes {ratio:g} times AdamW's rate."
        reason += _by_batch(spec, network, usual) + _by_compute(spec, network, tokens)
        ledger.decide(
            "optimizer.lr", usual, reason, "; ".join(filter(None, (source, of_optimizer)))
        )
        return usual
    if usual is not None and spec.schedule.kind != RANGE_TEST:
        _warn_of_own_rate(spec, method, network, usual, ledger)
    return float(own_rate)


def usual_learning_rate(spec: TrainingSpec, method: Method, network: Network) -> float | None:
    """What auto would take, where the given rate is far above it; a remedy then takes that. A range
    test goes there on purpose."""
    usual, own_rate = _of_optimizer(spec, _rate(spec, method, network)[0]), spec.optimizer.lr
    if usual is None or not isinstance(own_rate, float | int) or spec.schedule.kind == RANGE_TEST:
        return None
    return usual if own_rate > _FAR_TOO_HIGH * usual else None


def _warn_of_own_rate(
    spec: TrainingSpec, method: Method, network: Network, usual: float, ledger: Ledger
) -> None:
    own_rate = float(spec.optimizer.lr)
    recipe = _recipe(spec, network)
    is_large = recipe.size >= LARGE and network.parameters_by_size is not None
    high = _FAR_FROM_PUBLISHED if is_large and not recipe.is_tuning else _FAR_TOO_HIGH
    low = _FAR_TOO_LOW_TO_TUNE if recipe.is_tuning else _FAR_FROM_PUBLISHED
    takes = f"optimizer.lr is {own_rate:g}; for {_what(spec, method, network)} auto takes {usual:g}"
    if own_rate > high * usual:
        ledger.warn(f"{takes}. Over {high} times that, training is likely to diverge.")
    elif is_large and not spec.continues | recipe.is_tuning and own_rate * low < usual:
        ledger.warn(f"{takes}. Below a {low}th of that, much of the training is wasted.")
    elif is_large and recipe.is_tuning and own_rate * low < usual:
        ledger.warn(f"{takes}. Below a {low}th of that, it hardly learns.")


def _of_optimizer(spec: TrainingSpec, of_adamw: float) -> float | None:
    """The rate of the spec's optimizer where AdamW's is this one; None where nobody knows it."""
    ratio = _ratio(spec)
    if ratio is None:
        return None
    return of_adamw if ratio[0] == 1.0 else rounded(ratio[0] * of_adamw, 2)


def _ratio(spec: TrainingSpec) -> tuple[float, str] | None:
    """The rate of the spec's optimizer as a multiple of AdamW's, and who says so."""
    if is_modern_by_muon(spec):
        return RATE, RATE_SOURCE
    record = OPTIMIZERS.get(spec.optimizer.name)
    return None if record is None or record.rate is None else (record.rate, record.rate_source)


def _by_batch(spec: TrainingSpec, network: Network, rate: float) -> str:
    recipe = _recipe(spec, network)
    if recipe.is_tuning or network.parameters_by_size is None:
        return ""  # the sources of those count examples, or the size is not known
    of_recipe = recipe.usual("batch.tokens") if recipe.usual("optimizer.lr") else None
    usual = usual_batch(network.parameters_by_size) if of_recipe is None else of_recipe.value
    return rate_by_batch(rate, usual, spec.batch.tokens)


def _by_compute(spec: TrainingSpec, network: Network, tokens: int) -> str:
    """What DeepSeek's laws make of the compute, for large models from scratch."""
    recipe, model = _recipe(spec, network), network.architecture
    if recipe.size < LARGE or recipe.is_tuning or spec.continues or model is None:
        return ""
    computing = recipe.size - model.embeddings * model.vocab_size * model.d_model
    flops = 6.0 * max(1, computing) * tokens
    step_tokens = number_text(rounded(deepseek_step_tokens(flops), 2))
    return (
        f" By its compute the laws of DeepSeek LLM give AdamW {rounded(deepseek_rate(flops), 2):g} "
        f"in steps of {step_tokens} tokens ({DEEPSEEK_SOURCE})."
    )


def _no_rate(optimizer: str, of_adamw: float) -> PlanError:
    return PlanError(
        "INVALID_VALUE",
        f"`optimizer.lr` is auto, which has no published rate for {optimizer}: nobody has said "
        f"what multiple of AdamW's ({of_adamw:g} here) it takes.",
        "Set optimizer.lr to a number: try a few in short runs first, some hundred times AdamW's "
        "for sgd and sm3. Or set optimizer.name to adamw.",
        field="optimizer.lr",
    )


def _rate(spec: TrainingSpec, method: Method, network: Network) -> tuple[float, str, str]:
    recipe = _recipe(spec, network)
    row = recipe.usual("optimizer.lr")
    if recipe.is_tuning and row is not None:
        if spec.adapter is not None:
            size = f" of a model with {recipe.size:,} {recipe.counted}" if recipe.size else ""
            reason = f"Usual for {method.name} of an adapter{size}: far above that of all weights."
        else:
            reason = f"Usual for {method.name}: it shall change a trained model only a little."
        return row.value, reason, row.source
    count = network.parameters_by_size
    rate, source = learning_rate(count or _UNKNOWN_PARAMETERS)
    if count is not None and row is not None:
        rate, source = row.value, row.source
    size = "size, which is not known" if count is None else f"{recipe.size:,} {recipe.counted}"
    if not spec.continues:
        new = "" if method.name == "pretrain" else f", as its weights are new: {_NOT_TUNED}"
        return rate, f"By the model's {size}{new}.", source
    low = rounded(rate * _REWARMED_SHARE, 2)
    reason = f"A tenth of what it takes from scratch, by its {size}: higher, it forgets more."
    return low, reason, _CONTINUED_SOURCE


def _recipe(spec: TrainingSpec, network: Network) -> Recipe:
    """By the parameters that a token passes: of a model with experts a part."""
    count, model = network.parameters_by_size or 0, network.architecture
    if model is None:
        return recipe_of(spec, count)
    return recipe_of(spec, count, model.experts, model.d_model)


def _what(spec: TrainingSpec, method: Method, network: Network) -> str:
    if _recipe(spec, network).is_tuning:
        return f"{method.name} of an adapter" if spec.adapter is not None else method.name
    if network.parameters_by_size is None:
        return "a model of unknown size"
    return f"a model of {network.parameters_by_size:,} parameters"
