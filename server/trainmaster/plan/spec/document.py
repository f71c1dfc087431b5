"""The whole spec: what to train, as the user writes it."""

from __future__ import annotations

from typing import Any, Literal

from trainmaster.plan.spec.annotations import Auto, Count, Name, Section, Seed, Text, setting
from trainmaster.plan.spec.compute import SINGLE, ComputeSpec, EnvironmentSpec
from trainmaster.plan.spec.data import DataSpec
from trainmaster.plan.spec.model import AdapterSpec, ModelSpec
from trainmaster.plan.spec.phases import PhaseSpec
from trainmaster.plan.spec.places import (
    Framework,
    everywhere,
    lands,
    not_built,
    nowhere,
    only,
    such,
)
from trainmaster.plan.spec.running import AlertSpec, CheckpointSpec, LimitsSpec, RecoverySpec
from trainmaster.plan.spec.script import ScriptSpec, of_script
from trainmaster.plan.spec.training import BatchSpec, EvalSpec, OptimizerSpec, ScheduleSpec

_SUPERVISOR = everywhere("supervisor")
_CALLBACK = "the run's callback"
_PRECISIONS = ("auto", "fp32", "bf16", "fp16")


class TrainingSpec(Section):
    """What to train. Immutable; paths are absolute and sources named once `load_spec` made it."""

    @property
    def resolved_method(self) -> str:
        """The method, where the spec says auto the framework's usual one."""
        if self.method != "auto":
            return self.method
        return "sft" if self.framework == "trl" else "pretrain"

    @property
    def continues(self) -> bool:
        """Whether the model comes with weights that were trained before."""
        return self.model.path is not None or self.model.hub is not None

    spec_version: Literal[1] = setting(
        1, "Version of the spec's own format.", changes="never", lands=everywhere("planning")
    )
    name: Name = setting(
        ...,
        "The run's name; its id adds six characters.",
        changes="never",
        lands=lands(
            nanogpt="config.json",
            litgpt="log.run",
            hf="TrainingArguments.run_name, as the id",
            script="config.json",
        ),
    )
    framework: Framework = setting(
        ...,
        "Which kind of training script.",
        changes="never",
        lands=lands(
            nanogpt="train.py",
            litgpt="litgpt.pretrain, litgpt.finetune",
            hf="transformers.Trainer",
            trl="trl.SFTTrainer, DPOTrainer, KTOTrainer, RewardTrainer, GRPOTrainer",
            script="the program of `script`, as it is",
        ),
    )
    script: ScriptSpec | None = setting(
        None,
        "The program of framework: script.",
        changes="never",
        lands=of_script("the relay"),
    )
    method: Literal["auto", "pretrain", "sft", "dpo", "kto", "reward", "grpo"] = setting(
        "auto",
        "The training method. auto is pretrain, and sft for trl.",
        changes="never",
        lands=lands(
            nanogpt=only("pretrain", "auto", "pretrain", lacks="nanogpt only pretrains: take trl"),
            litgpt=only(
                "pretrain, finetune_full or finetune_lora",
                "auto",
                "pretrain",
                "sft",
                lacks="LitGPT learns from no preferences: take trl",
            ),
            hf=only(
                "Trainer",
                "auto",
                "pretrain",
                lacks="it only pretrains: take trl",
            ),
            trl=only(
                "SFTTrainer, DPOTrainer, KTOTrainer, RewardTrainer, GRPOTrainer",
                "auto",
                "sft",
                "dpo",
                "kto",
                "reward",
                "grpo",
                lacks="TRL tunes models: take hf or litgpt to pretrain",
            ),
        ),
    )
    method_args: dict[str, Any] = setting(
        {},
        "The method's own arguments, such as beta and loss for dpo; see below. `epochs` may stand "
        "there as the length.",
        changes="resume",
        lands=lands(
            nanogpt=nowhere("pretraining has none"),
            litgpt="data.init_args",
            hf=nowhere("pretraining has none"),
            trl="SFTConfig, DPOConfig, KTOConfig, RewardConfig, GRPOConfig",
        ),
    )
    model: ModelSpec = setting(
        ModelSpec(),
        "The network. It must be given, but for framework: script.",
        changes="never",
        lands=lands(nanogpt="ModelConfig", litgpt="model_config", hf="the model", trl="the model"),
    )
    adapter: AdapterSpec | None = setting(
        None,
        "Train a low-rank adapter instead of the whole model.",
        changes="never",
        lands=lands(
            nanogpt=nowhere("nanogpt trains whole models: take trl for an adapter"),
            litgpt="finetune_lora",
            hf=nowhere("our script for HF Trainer trains whole models: take trl for an adapter"),
            trl="peft_config",
        ),
    )
    data: DataSpec = setting(
        DataSpec(sources=[]),
        "The training data. It must be given, but for framework: script.",
        changes="never",
        lands=lands(
            nanogpt="prepare, sampler",
            litgpt="data",
            hf="train_dataset, eval_dataset",
            script="{data} in the command",
        ),
    )
    batch: BatchSpec = setting(
        BatchSpec(),
        "The batch of an optimizer step.",
        changes="resume",
        lands=lands(nanogpt="the loop", litgpt="train", hf="TrainingArguments"),
    )
    optimizer: OptimizerSpec = setting(
        OptimizerSpec(),
        "The optimizer.",
        changes="resume",
        lands=lands(nanogpt="AdamW", litgpt="optimizer", hf="TrainingArguments"),
    )
    schedule: ScheduleSpec = setting(
        ScheduleSpec(),
        "The learning-rate schedule.",
        changes="resume",
        lands=lands(nanogpt="schedule", litgpt="train", hf="TrainingArguments"),
    )
    steps: Count | None = setting(
        None,
        "Length in optimizer steps. Exactly one of steps, tokens, phases and, where a model is "
        "tuned, method_args.epochs is given. With framework: script none need be: the program ends "
        "by itself; one that ends before these steps is not complete.",
        changes="resume",
        unit="optimizer steps",
        lands=lands(
            nanogpt="the loop",
            litgpt="train.max_tokens, train.max_steps",
            hf="TrainingArguments.max_steps",
            script="the relay",
        ),
    )
    tokens: Count | Auto | None = setting(
        None,
        "Length in tokens; becomes steps. auto spends `limits.budget_usd`.",
        changes="resume",
        unit="tokens",
        lands=everywhere(
            such("steps", lambda value: value != "auto", "a number"),
            script=nowhere("its steps are the program's: give steps"),
        ),
    )
    phases: list[PhaseSpec] | None = setting(
        None, "A curriculum, stage by stage.", changes="resume", lands=not_built()
    )
    precision: Literal["auto", "fp32", "bf16", "fp16", "fp8"] = setting(
        "auto",
        "Number format of the matrix products. auto takes bf16 where the hardware has it, fp16 on "
        "older GPUs, else fp32. Weights and optimizer state stay fp32.",
        changes="box",
        lands=lands(
            nanogpt=only("autocast", *_PRECISIONS),
            litgpt=only("precision", *_PRECISIONS),
            hf=only("TrainingArguments.bf16, TrainingArguments.fp16", *_PRECISIONS),
        ),
    )
    seed: Seed = setting(
        1337,
        "Seeds weights, data order and dropout. Fixed, so that runs repeat.",
        changes="never",
        lands=lands(
            nanogpt="torch.manual_seed, the sampler",
            litgpt="seed",
            hf="TrainingArguments.seed, TrainingArguments.data_seed",
            script="{seed} in the command",
        ),
    )
    eval: EvalSpec = setting(
        EvalSpec(),
        "Validation on the held-out split.",
        changes="resume",
        lands=lands(nanogpt="the loop", litgpt="eval", hf="TrainingArguments.eval_strategy"),
    )
    checkpoint: CheckpointSpec = setting(
        CheckpointSpec(),
        "Saved training states.",
        changes="box",
        lands=lands(nanogpt="the saver", litgpt=_CALLBACK, hf=_CALLBACK, script="the relay"),
    )
    recovery: RecoverySpec = setting(
        RecoverySpec(), "What the supervisor does on failures.", changes="resume", lands=_SUPERVISOR
    )
    compute: ComputeSpec = setting(
        ComputeSpec(),
        "Hardware and processes.",
        changes="resume",
        lands=lands(
            nanogpt="device",
            litgpt="devices",
            hf="accelerate_config.yaml",
            script="{gpus} and {processes} in the command",
        ),
    )
    environment: Literal["auto", "existing"] | EnvironmentSpec = setting(
        "auto",
        "Python environment: auto builds or finds one that can train, existing takes the host's "
        "as it is.",
        changes="resume",
        lands=_SUPERVISOR,
    )
    env: dict[str, Text] = setting(
        {},
        "Plain environment variables. Never secrets: they would be stored in the run's folder.",
        changes="resume",
        lands=everywhere("the trainer's environment"),
    )
    secrets: list[Text] = setting(
        [],
        "Names of environment variables with secrets that the trainer is given. The settings must "
        "allow them; values come from the environment, `secrets.env` in the home, or for HF_TOKEN "
        "Hugging Face's token file.",
        changes="resume",
        lands=everywhere("the trainer's environment"),
    )
    tracking: dict[str, Any] = setting(
        {},
        "The framework's own loggers, each true or a mapping with its options: "
        "{tensorboard: true, wandb: {project: demo}}.",
        changes="resume",
        lands=lands(
            nanogpt=nowhere("nanogpt has no loggers; its metrics are recorded without"),
            litgpt="logger_name, log",
            hf="TrainingArguments.report_to",
        ),
    )
    alerts: list[AlertSpec] = setting(
        [],
        "Conditions and the destinations of their messages.",
        changes="resume",
        lands=_SUPERVISOR,
    )
    host: Name = setting(
        "local",
        "Where it runs: local, debug, a host's name, or kaggle. A list such as [gpu1, gpu2] trains "
        "on several hosts at once: the first has the supervisor, the rest are `other_hosts`.",
        changes="never",
        lands=everywhere("launch"),
    )
    other_hosts: list[Name] = setting(
        [],
        "Further hosts of the same training, as `host` given as a list says.",
        changes="never",
        lands=lands(
            nanogpt=only("one machine", [], lacks=SINGLE),
            litgpt="devices, num_nodes",
            hf="torchrun",
            script="NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT; {nodes} … in the command",
        ),
    )
    limits: LimitsSpec = setting(
        LimitsSpec(), "Limits of the run.", changes="resume", lands=_SUPERVISOR
    )
    labels: dict[str, Text] = setting(
        {},
        "Labels of the user, to find runs by.",
        changes="resume",
        lands=everywhere("config.json"),
    )
    pty: bool = setting(
        False,
        "Give the trainer a pseudo-terminal. Off: a log needs none, and progress bars fill it.",
        changes="resume",
        lands=everywhere("hold"),
    )
