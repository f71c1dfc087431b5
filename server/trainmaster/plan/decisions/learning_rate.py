"""The learning rate: by the model's size for a new model, by the method for fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.config.lr_schedule import RANGE_TEST
from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainer_runtime.core.protocol.figures import rounded
from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.hyperparameters import learning_rate, rate_by_batch
from trainmaster.plan.decisions.method import Method
from trainmaster.plan.decisions.model import Network
from trainmaster.plan.decisions.style_and_optimizer import RATE, RATE_SOURCE, is_modern_by_muon
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_FAR_TOO_HIGH = 10
# The share of the rate from scratch for a model that continues from weights.
_REWARMED_SHARE = 0.1
# Assumed if the size is unknown: its rate is safe for smaller models too.
_UNKNOWN_PARAMETERS = 1_000_000_000
_NOT_TUNED = "the method's usual rate would hardly move them"
_CONTINUED_SOURCE = "Ibrahim et al. 2024 (arXiv 2403.08763), section 6"


@dataclass(frozen=True, slots=True)
class _Rate:
    whole: float
    adapter: float
    source: str


_RATES = {
    "sft": _Rate(
        2e-5,
        2e-4,
        "Taori et al. 2023 (Alpaca) for whole models, Dettmers et al. 2023 (QLoRA) for adapters",
    ),
    "dpo": _Rate(
        5e-7, 5e-6, "Tunstall et al. 2023 (Zephyr), and its recipe dpo-qlora for adapters"
    ),
    "kto": _Rate(5e-7, 5e-6, "Ethayarajh et al. 2024 (KTO): 5e-7 to 5e-6"),
    "reward": _Rate(1e-5, 1e-4, "Ouyang et al. 2022 (InstructGPT), appendix C: 9e-6"),
    "grpo": _Rate(1e-6, 1e-5, "Shao et al. 2024 (DeepSeekMath), section 4.2"),
}
# Methods that presume a model which can already answer.
_ALIGNING = ("dpo", "kto", "grpo")


def choose_learning_rate(
    spec: TrainingSpec, method: Method, network: Network, ledger: Ledger
) -> float:
    """The highest rate of the schedule; one that is given is held against what auto would take.

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
        reason += _by_batch(spec, method, network, usual)
        ledger.decide(
            "optimizer.lr", usual, reason, "; ".join(filter(None, (source, of_optimizer)))
        )
        return usual
    if _is_far_above(spec, usual):
        ledger.warn(
            f"optimizer.lr is {own_rate:g}; for {_what(spec, method, network)} auto takes "
            f"{usual:g}. Over {_FAR_TOO_HIGH} times that, training is likely to diverge."
        )
    return float(own_rate)


def usual_learning_rate(spec: TrainingSpec, method: Method, network: Network) -> float | None:
    """What auto would take, where the given rate is far above it; a remedy then takes that."""
    usual = _of_optimizer(spec, _rate(spec, method, network)[0])
    return usual if _is_far_above(spec, usual) else None


def _is_far_above(spec: TrainingSpec, usual: float | None) -> bool:
    """Whether the spec's rate is; a range test goes there on purpose."""
    own_rate = spec.optimizer.lr
    if usual is None or not isinstance(own_rate, float | int):
        return False
    return own_rate > _FAR_TOO_HIGH * usual and spec.schedule.kind != RANGE_TEST


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


def _by_batch(spec: TrainingSpec, method: Method, network: Network, rate: float) -> str:
    if _is_tuned(spec, method) or network.parameters_by_size is None:
        return ""  # the sources of those count examples, or the size is not known
    return rate_by_batch(rate, network.parameters_by_size, spec.batch.tokens)


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
    if _is_tuned(spec, method):
        of_method = _RATES[method.name]
        if spec.adapter is not None:
            reason = f"Usual for {method.name} of an adapter, which takes ten times the rate."
            return of_method.adapter, reason, of_method.source
        reason = f"Usual for {method.name}: it shall change a trained model only a little."
        return of_method.whole, reason, of_method.source
    count = network.parameters_by_size
    rate, source = learning_rate(count or _UNKNOWN_PARAMETERS)
    size = "size, which is not known" if count is None else f"{count:,} parameters"
    if not spec.continues:
        new = "" if method.name == "pretrain" else f", as its weights are new: {_NOT_TUNED}"
        return rate, f"By the model's {size}{new}.", source
    low = rounded(rate * _REWARMED_SHARE, 2)
    reason = f"A tenth of what it takes from scratch, by its {size}: higher, it forgets more."
    return low, reason, _CONTINUED_SOURCE


def _is_tuned(spec: TrainingSpec, method: Method) -> bool:
    """Whether the rate is the method's; new weights learn sft and rewards as they learn texts."""
    if method.name in _ALIGNING:
        return True
    return method.name in _RATES and (spec.continues or spec.adapter is not None)


def _what(spec: TrainingSpec, method: Method, network: Network) -> str:
    if _is_tuned(spec, method):
        return f"{method.name} of an adapter" if spec.adapter is not None else method.name
    if network.parameters_by_size is None:
        return "a model of unknown size"
    return f"a model of {network.parameters_by_size:,} parameters"
