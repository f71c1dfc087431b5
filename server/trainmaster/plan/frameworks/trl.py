"""TRL: its trainers of methods, which take Trainer's arguments beside their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.annotations import Count, FilePath, NotNegative, Positive, Share
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.place import Place, nowhere, only
from trainmaster.plan.frameworks import hf
from trainmaster.plan.frameworks.arguments import EPOCHS, Argument
from trainmaster.plan.frameworks.packages import Package
from trainmaster.plan.frameworks.shared_places import ROWS

_OWN_ORDER = _OWN_LOSS = ("auto", "sft")
_BETA = Argument(
    NotNegative,
    0.1,
    "The penalty for leaving the reference model. 0.1 as in Rafailov et al. 2023 (DPO).",
)
_ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {
    "sft": {
        "epochs": EPOCHS,
        "packing": Argument(
            bool,
            None,
            "Fill sequences with several examples: whole ones, each where it fits best, that don't "
            "see each other; plain texts without gaps, cut where a sequence ends. Decided when "
            "planning: yes for plain texts, no for examples, of which each step has equally many.",
        ),
        "completion_only_loss": Argument(
            bool, None, "Learn completions but not prompts. TRL's default: where rows have both."
        ),
        "assistant_only_loss": Argument(
            bool, False, "Learn the assistant's messages alone; its chat template must mark them."
        ),
    },
    "dpo": {
        "epochs": EPOCHS,
        "beta": _BETA,
        "loss": Argument(
            Literal["sigmoid", "ipo"],
            "sigmoid",
            "sigmoid is DPO's own; ipo (Azar et al. 2023) holds back where preferences are sure.",
        ),
        "label_smoothing": Argument(
            Share, 0.0, "Share of preferences taken to be the wrong way round."
        ),
    },
    "kto": {
        "epochs": EPOCHS,
        "beta": Argument(NotNegative, 0.1, "As DPO's. 0.1 as in Ethayarajh et al. 2024 (KTO)."),
        "desirable_weight": Argument(
            Positive, 1.0, "Weight of good examples, to balance them with the bad."
        ),
        "undesirable_weight": Argument(Positive, 1.0, "Weight of bad examples."),
    },
    "reward": {
        "epochs": EPOCHS,
        "center_rewards_coefficient": Argument(
            NotNegative, None, "Pulls rewards to a mean of zero. Null does not."
        ),
    },
    "grpo": {
        "reward_file": Argument(
            FilePath,
            ...,
            "A Python file of this machine. Its functions named reward or reward_…, called as "
            "`reward(completions, **columns)`, give each completion a number. It travels as the "
            "run's reward.py.",
        ),
        "num_generations": Argument(
            Count, 8, "Completions for each prompt, which are compared; at least 2."
        ),
        "max_completion_length": Argument(
            Count, None, "Tokens of a completion at most. Planned as half of `data.seq_len`."
        ),
        "beta": Argument(
            NotNegative,
            0.0,
            "The penalty for leaving the reference model. 0, as is usual now, loads no reference "
            "model.",
        ),
        "temperature": Argument(Positive, 1.0, "How freely completions are drawn."),
        "top_p": Argument(Share, 1.0, "Share of probability that is drawn from."),
    },
}


def _refusals(spec: TrainingSpec) -> Iterator[Problem]:
    yield from hf.FRAMEWORK.refusals(spec)
    for term in spec.optimizer.loss_terms if spec.method not in _OWN_LOSS else ():
        yield wrong_value(
            f"optimizer.{term}",
            f"is given, but of trl only sft learns by the cross-entropy; method is {spec.method}.",
            "Remove it, or set method to sft.",
        )
    curriculum = "phases" if spec.phases is not None else "batch.ramp"
    if (spec.phases is not None or spec.batch.ramp is not None) and spec.method not in _OWN_ORDER:
        yield wrong_value(
            curriculum,
            f"is given, but with trl only sft has phases and a growing batch; method is "
            f"{spec.method}.",
            f"Leave {curriculum} out, or set method to sft.",
        )
    packs = spec.method in _OWN_ORDER and spec.method_args.get("packing")
    has_rows = any(source.format != "text" for source in spec.data.sources)
    if packs and has_rows and spec.compute.strategy.startswith("zero3"):
        yield wrong_value(
            "method_args.packing",
            "is true: where zero3 parts the weights from the start, it can't be verified that the "
            "model keeps rows apart.",
            "Set it to false, or compute.strategy to zero2, ddp or fsdp.",
        )
    if spec.phases is not None and packs:
        yield wrong_value(
            "method_args.packing",
            "is true: packed rows belong to no source, so that no phase could mix them.",
            "Set it to false, or take hf, which cuts sequences from each source.",
        )


_TRAINED_BEFORE = nowhere("its methods tune models, whose tokenizer is there")
_PLACES: Mapping[str, str | Place] = {
    **hf.FRAMEWORK.places,
    "framework": "trl.SFTTrainer, DPOTrainer, KTOTrainer, RewardTrainer, GRPOTrainer",
    "method": only(
        "SFTTrainer, DPOTrainer, KTOTrainer, RewardTrainer, GRPOTrainer",
        "auto",
        "sft",
        "dpo",
        "kto",
        "reward",
        "grpo",
        lacks="TRL tunes models: take hf or litgpt to pretrain",
    ),
    "objective": nowhere("TRL tunes causal models: take hf"),
    "model.arch": "AutoConfig.for_model, AutoModelForCausalLM.from_config",
    "model.path": "AutoModelForCausalLM.from_pretrained",
    "model.hub": "AutoModelForCausalLM.from_pretrained",
    "method_args": "SFTConfig, DPOConfig, KTOConfig, RewardConfig, GRPOConfig",
    "model.revision": "model_init_kwargs.revision",
    "adapter": "peft_config",
    "adapter.kind": "peft.LoraConfig",
    "adapter.r": "LoraConfig.r",
    "adapter.alpha": "LoraConfig.lora_alpha",
    "adapter.targets": "LoraConfig.target_modules",
    "adapter.quantize": "BitsAndBytesConfig",
    "data.sources": "datasets.load_dataset",
    "data.sources[].name": "val_loss/<source>",
    "data.sources[].path": "datasets.load_dataset",
    "data.sources[].format": only(
        "datasets.load_dataset", *ROWS, lacks="TRL reads rows, and makes tokens of them itself"
    ),
    "data.sources[].weight": "the order of the rows",
    "data.sources[].license": "prepare",
    "data.validation": "eval_dataset",
    "data.validation[].name": "val_loss/<name>",
    "data.validation[].path": "eval_dataset",
    "data.validation[].format": only(
        "datasets.load_dataset", *ROWS, lacks="TRL reads rows, and makes tokens of them itself"
    ),
    "data.tokenizer": "processing_class",
    "data.tokenizer.train": _TRAINED_BEFORE,
    "data.tokenizer.size": _TRAINED_BEFORE,
    "data.seq_len": "SFTConfig.max_length, DPOConfig.max_length, …",
    "data.document_masks": nowhere("it keeps rows apart already, but for sft's `packing`"),
    "data.bad_rows": "prepare",
    **{
        f"data.filters{member}": nowhere("filters are for pretraining on shards")
        for member in ("", ".min_chars", ".gopher_quality", ".c4_quality", ".dedup", ".pii")
    },
    "compute.loss": only(
        "TrainingArguments.use_liger_kernel",
        "whole",
        "liger",
        lacks="TRL computes its losses itself, or by Liger",
    ),
    "phases[].seq_len": nowhere("its rows are cut once, before the training"),
    "data.prepare": only(
        "datasets.load_dataset",
        "auto",
        "box",
        lacks="its rows are read where it trains, all at once",
    ),
}
FRAMEWORK = replace(
    hf.FRAMEWORK,
    name="trl",
    places=_PLACES,
    refusals=_refusals,
    usual_method="sft",
    arguments=_ARGUMENTS,
    tiled_methods=frozenset({"sft", "dpo", "kto", "grpo"}),
    # From where our scripts' arguments have their names on.
    packages=(
        Package("trl", "1.16.0", ">=1.0,<2", "; python_version >= '3.11'"),
        *hf.FRAMEWORK.packages,
    ),
    can_trace=False,
    unrecorded=lambda _: (),
)
