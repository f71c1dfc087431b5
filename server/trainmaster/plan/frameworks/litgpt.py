"""LitGPT: pretraining of its own models, fine-tuning of weights in its layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainer_runtime.core.config.lr_schedule import SCHEDULES
from trainer_runtime.core.frameworks.litgpt import LORA_PARTS, VERSION
from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.annotations import Text
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.place import Place, nowhere, only
from trainmaster.plan.frameworks.arguments import EPOCHS, Argument
from trainmaster.plan.frameworks.framework import Framework
from trainmaster.plan.frameworks.packages import Package
from trainmaster.plan.frameworks.shared_places import (
    NO_PREFERENCES,
    OF_NANOGPT,
    OF_TRANSFORMERS,
    OPTIMIZER,
    OWN_LOSS,
    PRECISIONS,
    READS_SHARDS,
    SHARDS,
    TEXTS,
    phases_by,
    samples_by,
    stopping_by,
)
from trainmaster.plan.named_models import litgpt_names


def _refusals(spec: TrainingSpec) -> Iterator[Problem]:
    is_tuning = spec.method == "sft"
    if is_tuning and not spec.continues:
        yield Problem(
            "MISSING_FIELD",
            "model.path",
            "`model.path` is missing: LitGPT tunes existing weights.",
            "Give model.path or model.hub.",
        )
    if spec.adapter is not None and not is_tuning:
        yield wrong_value(
            "adapter",
            "is given, but LitGPT trains adapters only when it fine-tunes.",
            "Set method to sft, or remove the adapter.",
        )
    if spec.adapter is not None and spec.compute.strategy == "fsdp":
        yield wrong_value(
            "compute.strategy",
            "is fsdp, which LitGPT does not have for adapters.",
            "Set it to auto, or to ddp; or take trl.",
        )
    is_quantized = spec.adapter is not None and spec.adapter.quantize is not None
    if is_quantized and spec.optimizer.name not in ("auto", "adamw"):
        yield wrong_value(
            "optimizer.name",
            f"is {spec.optimizer.name}, but LitGPT trains an adapter of quantized weights by "
            "bitsandbytes' AdamW alone.",
            "Set it to adamw, or adapter.quantize to null; or take trl.",
        )
    if is_tuning:
        yield from _size_problems(spec)
    for place, source in spec.data.inputs:
        if is_tuning and source.format == "text":
            yield wrong_value(
                f"{place}.format",
                "is text, but LitGPT fine-tunes on questions and answers.",
                "Give rows, for example format: jsonl; or set method to pretrain, or take trl.",
            )


def _size_problems(spec: TrainingSpec) -> Iterator[Problem]:
    """LitGPT's fine-tuning loops take all steps in one size."""
    sizes: list[tuple[str, object]] = [("batch.ramp", spec.batch.ramp)]
    for index, phase in enumerate(spec.phases or ()):
        sizes += [(f"phases[{index}].batch", phase.batch)]
        sizes += [(f"phases[{index}].seq_len", phase.seq_len)]
    for field, value in sizes:
        if value is not None:
            yield wrong_value(
                field,
                "is given, but LitGPT fine-tunes in steps of one size.",
                "Leave it out; pretraining with litgpt, hf and nanogpt have it.",
            )


_PLACES: Mapping[str, str | Place] = {
    "name": "log.run",
    "framework": "litgpt.pretrain, litgpt.finetune",
    "method": only(
        "pretrain, finetune_full or finetune_lora",
        "auto",
        "pretrain",
        "sft",
        lacks="LitGPT learns from no preferences: take trl",
    ),
    "objective": nowhere("LitGPT's models are causal: take hf"),
    "method_args": "data.init_args",
    "model": "model_config",
    "model.n_layer": "model_config.n_layer",
    "model.n_head": "model_config.n_head",
    "model.n_kv_head": "model_config.n_query_groups",
    "model.d_model": "model_config.n_embd",
    "model.d_ff": "model_config.intermediate_size",
    "model.vocab_size": "model_config.padded_vocab_size",
    "model.style": only(
        "model_config.norm_class_name, model_config.mlp_class_name",
        "auto",
        "gpt2",
        "llama",
        lacks="modern is nanogpt's",
    ),
    **OF_NANOGPT,
    "model.rope_base": nowhere("LitGPT's own models set it: take nanogpt or hf"),
    "model.dropout": nowhere("LitGPT's models have no dropout"),
    "model.preset": "model_name, or the sizes",
    **OF_TRANSFORMERS,
    "model.path": "initial_checkpoint_dir, checkpoint_dir",
    "model.hub": "initial_checkpoint_dir, checkpoint_dir",
    "model.revision": "what is fetched",
    "adapter": "finetune_lora",
    "adapter.kind": "finetune_lora",
    "adapter.r": "lora_r",
    "adapter.alpha": "lora_alpha",
    "adapter.targets": "lora_query, lora_key, lora_value, lora_projection, lora_mlp, lora_head",
    "adapter.quantize": "quantize",
    "data": "data",
    **SHARDS,
    "data.sources[].format": only("prepare, InstructionRows", *TEXTS, lacks=NO_PREFERENCES),
    "data.validation[].format": only("prepare, InstructionRows", *TEXTS, lacks=NO_PREFERENCES),
    "data.tokenizer": "tokenizer_dir",
    "data.seq_len": "train.max_seq_length, window of the shards",
    "data.document_masks": nowhere("LitGPT has no masks: take nanogpt or hf"),
    "data.workers": nowhere("its shards are mapped: a batch is read within its step"),
    "data.bad_rows": "prepare",
    "data.prepare": only("prepare", "auto", "box", "here", lacks=READS_SHARDS),
    "batch": "train",
    "batch.tokens": "train.global_batch_size, in sequences",
    "batch.micro_batch": "train.micro_batch_size",
    **OPTIMIZER,
    "optimizer.lr": "optimizer.init_args.lr",
    "optimizer.grad_clip": "train.max_norm",
    "schedule": "train",
    "schedule.kind": only("the wrapper's schedule", *SCHEDULES),
    "schedule.warmup_steps": "train.lr_warmup_steps",
    "schedule.min_lr_ratio": "train.min_lr",
    "schedule.steps": "the wrapper's schedule",
    "schedule.power": "the wrapper's schedule",
    "schedule.cycles": "the wrapper's schedule",
    "schedule.warmup": "the wrapper's schedule",
    "steps": "train.max_tokens, train.max_steps",
    **phases_by("the wrapper"),
    "precision": only("precision", *PRECISIONS),
    "seed": "seed",
    "eval": "eval",
    "eval.every_steps": "eval.interval",
    "eval.batches": "eval.max_iters",
    **samples_by("the loop"),
    "eval.samples.chat": nowhere("its prompt styles are not applied to samples"),
    **stopping_by("the loop"),
    "checkpoint.ema": "the loop",
    "checkpoint": "the run's callback",
    "compute": "devices",
    "compute.gpus": "devices",
    "compute.nodes": "num_nodes; the job",
    "compute.min_nodes": "supervisor",
    "compute.processes": "devices",
    "compute.strategy": only(
        "the wrapper's Fabric strategy",
        "auto",
        "single",
        "ddp",
        "fsdp",
        lacks="LitGPT has ddp and fsdp alone; hf has DeepSpeed",
    ),
    "compute.activation_checkpointing": "the wrapper's Fabric strategy",
    "compute.compile": "TORCH_COMPILE_DISABLE where it is off",
    "compute.deterministic": "the wrapper: torch.use_deterministic_algorithms",
    "compute.fp8_lm_head": OWN_LOSS,
    "tracking": "logger_name, log",
    "other_hosts": "devices, num_nodes",
}
FRAMEWORK = Framework(
    name="litgpt",
    places=_PLACES,
    refusals=_refusals,
    arguments={
        "sft": {
            "epochs": EPOCHS,
            "mask_prompt": Argument(bool, True, "Learn answers but not instructions."),
            "prompt_style": Argument(
                Text, "auto", "LitGPT's name of the prompt's form; auto is the model's."
            ),
        }
    },
    usual_style=("llama", "LitGPT's models have rotary positions."),
    has_rotary_gpt2=True,
    builds=lambda model: model.is_gpt2 or model.litgpt is not None,
    own_names=litgpt_names(),
    layouts={"hf": "save_pretrained", "litgpt": "litgpt convert_from_litgpt"},
    has_own_adapters=True,
    nf4_bits=4.5,  # constants in fp32 for each 64 weights
    adapter_matrices=tuple(name for names in LORA_PARTS.values() for name in names),
    usual_adapter_targets=("query", "value"),
    strategies=("ddp", "fsdp"),
    adapter_strategies=("ddp",),
    can_trace=True,
    # It is imported by parts that it doesn't call public: this version alone.
    packages=(Package("litgpt", VERSION, f"=={VERSION}"),),
    packages_gib=0.3,
    loggers={
        "tensorboard": (),
        "csv": (),
        "wandb": ("project", "run", "group"),
        "mlflow": (),
    },
    loggers_at_once=1,
    exports=2,  # also as transformers reads it
)
