"""What published trainings took, by kind of training and by the model's size: one table.

A value here is one that a paper or a recipe states for its own run. Sources:

- GPT-3: Brown et al. 2020, table 2.1 and appendix B; LLaMA: Touvron et al. 2023, table 2 (rates,
  4M tokens a step, betas, decay, clipping, cosine to a tenth); Llama 3: Llama Team 2024, table 3.
- OLMo 2: OLMo Team 2024; OLMoE: Muennighoff et al. 2024; DeepSeek-V2: DeepSeek-AI 2024.
- Tuning: Tunstall et al. 2023 (Zephyr), Lambert et al. 2024 (Tulu 3), Taori et al. 2023 (Alpaca),
  Dettmers et al. 2023 (QLoRA), Ethayarajh et al. 2024 (KTO), Ouyang et al. 2022 (InstructGPT),
  Shao et al. 2024 (DeepSeekMath), Zhou et al. 2023 (LIMA).

The laws of DeepSeek LLM (DeepSeek-AI 2024, arXiv 2401.02954, section 3.1) stand beside the table:
they go by the compute, which it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainmaster.plan.architecture import Experts
from trainmaster.plan.frameworks import method_of
from trainmaster.plan.spec import TrainingSpec

# From here on a training takes hours on the GPUs it needs; smaller ones are for trying out.
LARGE = 50_000_000
# A token passes less than this share of the parameters of a model with experts.
WITH_EXPERTS = 0.8
DEEPSEEK_SOURCE = "DeepSeek-AI 2024 (DeepSeek LLM), section 3.1"
_GPT3 = "Brown et al. 2020 (GPT-3)"
_LLAMA = "Touvron et al. 2023 (LLaMA), table 2"
_TULU = "Lambert et al. 2024 (Tulu 3)"
_ZEPHYR = "Tunstall et al. 2023 (Zephyr)"
_QLORA = "Dettmers et al. 2023 (QLoRA), appendix B"
_OLMOE = "Muennighoff et al. 2024 (OLMoE), appendix B"


@dataclass(frozen=True, slots=True)
class Usual:
    """What a field of the spec has in published trainings, from `least` parameters on.

    `low`, `high`: the published values with a margin, beyond which one departs from them (of betas
    the second); `unusual`: words that depart; `why` that matters. For `batch.sequences` and
    `schedule.warmup_share` the plan derives the field: tokens of a step, steps of warm-up.
    """

    field: str
    value: Any
    source: str
    least: int = 0
    low: float | None = None
    high: float | None = None
    unusual: tuple[str, ...] = ()
    why: str = ""


_SLOW = "its average is slow to follow gradients that grow, and large trainings then spike"
_FORGETS = "more makes a tuned model forget"
_WARMUP = Usual(
    "schedule.warmup_share",
    0.02,
    f"{_LLAMA}: 2,000 steps; {_GPT3}: 375M tokens",
    low=1e-9,
    high=0.2,
    why="without one the first steps are too large for Adam's unsettled moments, and a long one is "
    "time at low rates",
)
_BY_PAIRS = replace(_WARMUP, value=0.1, source=f"{_ZEPHYR}; {_TULU}", low=None, high=0.3)
_ONE_EPOCH = Usual(
    "method_args.epochs", 1, f"{_TULU}; Ouyang et al. 2022", high=3, why="preferences overfit"
)
_BETA = Usual(
    "method_args.beta",
    0.1,
    f"Rafailov et al. 2023 (DPO); {_ZEPHYR}: 0.01",
    low=0.005,
    high=0.6,
    why="a low one lets the model leave its reference, a high one keeps it from learning",
)
TABLES: Mapping[str, tuple[Usual, ...]] = {
    "pretrain": (
        Usual("data.seq_len", 1024, "Radford et al. 2019 (GPT-2)"),
        Usual("data.seq_len", 2048, _GPT3, least=10**9),
        Usual("batch.tokens", 1 << 19, f"{_GPT3}, table 2.1"),
        Usual("batch.tokens", 1 << 20, f"{_GPT3}, table 2.1", least=10**9),
        Usual("batch.tokens", 1 << 22, _LLAMA, least=6_500_000_000),
        Usual("optimizer.lr", 3e-4, f"{_LLAMA}; so Llama 2, 3 and OLMo 2", least=6_500_000_000),
        Usual("optimizer.lr", 1.5e-4, f"{_LLAMA}; so Llama 3 70B", least=30_000_000_000),
        Usual("optimizer.lr", 8e-5, "Llama Team 2024 (Llama 3), table 3", least=300_000_000_000),
        Usual(
            "optimizer.weight_decay",
            0.1,
            f"{_GPT3}, appendix B; {_LLAMA}",
            low=0.005,
            high=0.5,
            why="weights grow without it, and too much holds them back",
        ),
        Usual(
            "optimizer.betas", [0.9, 0.95], f"{_GPT3}, appendix B; {_LLAMA}", high=0.99, why=_SLOW
        ),
        Usual(
            "optimizer.grad_clip",
            1.0,
            f"{_GPT3}, appendix B; {_LLAMA}",
            low=0.05,
            high=10.0,
            why="a single bad batch can then ruin the weights",
        ),
        Usual(
            "schedule.kind",
            "cosine",
            f"{_GPT3}; {_LLAMA}",
            unusual=("constant",),
            why="the last part of the loss falls only while the rate does",
        ),
        Usual(
            "schedule.min_lr_ratio",
            0.1,
            f"{_GPT3}; {_LLAMA}",
            high=0.5,
            why="the last part of the loss falls only while the rate does",
        ),
        _WARMUP,
    ),
    "pretrain.experts": (
        Usual("batch.tokens", 1 << 22, _OLMOE, least=10**9),
        Usual("batch.tokens", 1 << 25, "DeepSeek-AI 2024 (DeepSeek-V2)", least=10**10),
        Usual("optimizer.lr", 4e-4, _OLMOE, least=10**9),
        Usual("optimizer.lr", 2.4e-4, "DeepSeek-AI 2024 (DeepSeek-V2)", least=10**10),
    ),
    "tuning": (
        Usual("data.seq_len", 2048, f"{_TULU}; {_ZEPHYR}"),
        Usual("batch.sequences", 128, f"{_TULU}; Taori et al. 2023 (Alpaca)", low=4, high=2048),
        Usual("optimizer.weight_decay", 0.0, f"{_TULU}; Taori et al. 2023", high=0.2, why=_FORGETS),
        Usual("optimizer.betas", [0.9, 0.999], "TRL's default; Dettmers et al. 2023 (QLoRA)"),
        Usual("schedule.kind", "linear", f"{_TULU}; TRL's default"),
        Usual("schedule.min_lr_ratio", 0.0, f"{_TULU}; TRL's default"),
        Usual(
            "schedule.warmup_share", 0.03, f"{_TULU}; Taori et al. 2023", high=0.3, why=_WARMUP.why
        ),
    ),
    "sft": (
        Usual("optimizer.lr", 2e-5, f"Taori et al. 2023 (Alpaca); {_ZEPHYR}"),
        Usual("optimizer.lr", 1e-5, "Taori et al. 2023 (Alpaca), 13B", least=10**10),
        Usual("optimizer.lr", 2e-6, f"{_TULU}, 70B", least=60 * 10**9),
        Usual("method_args.epochs", 2, _TULU, high=20, why="it learns the examples by heart"),
    ),
    "sft.adapter": (
        Usual("optimizer.lr", 2e-4, _QLORA),
        Usual("optimizer.lr", 1e-4, _QLORA, least=30 * 10**9),
        Usual("batch.sequences", 16, _QLORA, low=2, high=512),
    ),
    "sft.nf4": (Usual("optimizer.grad_clip", 0.3, _QLORA, low=0.05, high=10.0),),
    "dpo": (
        Usual("optimizer.lr", 5e-7, f"{_ZEPHYR}; {_TULU}"),
        Usual("optimizer.lr", 2e-7, f"{_TULU}, 70B", least=60 * 10**9),
        _BY_PAIRS,
        _ONE_EPOCH,
        _BETA,
    ),
    "dpo.adapter": (Usual("optimizer.lr", 5e-6, f"{_ZEPHYR}, recipe dpo-qlora"),),
    "kto": (
        Usual("optimizer.lr", 5e-7, "Ethayarajh et al. 2024 (KTO): 5e-7 to 5e-6"),
        Usual("batch.sequences", 32, "Ethayarajh et al. 2024 (KTO)"),
        _BY_PAIRS,
        _ONE_EPOCH,
        _BETA,
    ),
    "kto.adapter": (Usual("optimizer.lr", 5e-6, "Ethayarajh et al. 2024 (KTO): 5e-7 to 5e-6"),),
    "reward": (
        Usual("optimizer.lr", 1e-5, "Ouyang et al. 2022 (InstructGPT), appendix C: 9e-6"),
        Usual("batch.sequences", 64, "Ouyang et al. 2022 (InstructGPT), appendix C"),
        _ONE_EPOCH,
    ),
    "reward.adapter": (Usual("optimizer.lr", 1e-4, "Ouyang et al. 2022, times ten for adapters"),),
    "grpo": (
        Usual("optimizer.lr", 1e-6, "Shao et al. 2024 (DeepSeekMath), section 4.2"),
        Usual("data.seq_len", 1024, "Shao et al. 2024 (DeepSeekMath), section 4.2"),
        Usual("batch.sequences", 1024, "Shao et al. 2024 (DeepSeekMath), section 4.2"),
    ),
    "grpo.adapter": (Usual("optimizer.lr", 1e-5, "Shao et al. 2024, times ten for adapters"),),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The rows for a training: of `tables`, the most particular first, for `size` parameters; where
    `has_experts` they are the active ones, which a token passes."""

    tables: tuple[str, ...]
    size: int
    has_experts: bool = False

    @property
    def is_tuning(self) -> bool:
        return "tuning" in self.tables

    @property
    def counted(self) -> str:
        """What `size` counts, in words."""
        return "active parameters" if self.has_experts else "parameters"

    def usual(self, field: str) -> Usual | None:
        return next((row for row in self.rows() if row.field == field), None)

    def rows(self) -> Iterator[Usual]:
        """Those that count, one for each field."""
        taken: set[str] = set()
        for table in self.tables:
            for row in reversed(TABLES.get(table, ())):
                if row.least <= self.size and row.field not in taken:
                    taken.add(row.field)
                    yield row


def recipe_of(
    spec: TrainingSpec, size: int, experts: Experts | None = None, d_model: int = 0
) -> Recipe:
    """The recipe of a spec's kind of training for a model of so many parameters, which goes by the
    active ones; new weights learn sft and rewards as texts."""
    active = size - (0 if experts is None else experts.idle_parameters(d_model))
    has_experts = active < WITH_EXPERTS * size
    size = active if has_experts else size
    method = method_of(spec)
    aligns = method in ("dpo", "kto", "grpo")
    if method == "pretrain" or not (aligns or spec.continues or spec.adapter is not None):
        return Recipe(
            ("pretrain.experts", "pretrain") if has_experts else ("pretrain",), size, has_experts
        )
    adapter = spec.adapter
    own = [] if adapter is None else [f"{method}.{adapter.quantize}", f"{method}.adapter"]
    return Recipe((*own, method, "tuning"), size, has_experts)


def deepseek_rate(flops: float) -> float:
    """Best AdamW rate for a compute: 0.3118 C^-0.1250, near which the loss is flat."""
    return float(0.3118 * flops**-0.1250)


def deepseek_step_tokens(flops: float) -> float:
    """Best tokens of a step for a compute: 0.2920 C^0.3271, near which the loss is flat."""
    return float(0.2920 * flops**0.3271)
