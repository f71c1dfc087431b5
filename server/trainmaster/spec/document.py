"""The whole spec: what to train, as the user writes it."""

from __future__ import annotations

from typing import Any, Literal

from trainmaster.spec.annotations import Auto, Count, Name, Section, Seed, Text, setting
from trainmaster.spec.running import (
    AlertSpec,
    CheckpointSpec,
    ComputeSpec,
    EnvironmentSpec,
    LimitsSpec,
    RecoverySpec,
)
from trainmaster.spec.training import (
    AdapterSpec,
    BatchSpec,
    DataSpec,
    EvalSpec,
    ModelSpec,
    OptimizerSpec,
    PhaseSpec,
    ScheduleSpec,
)


class TrainingSpec(Section):
    """What to train. Immutable; paths are absolute and sources named once `load_spec` made it."""

    spec_version: Literal[1] = setting(1, "Version of the spec's own format.", changes="never")
    name: Name = setting(..., "The run's name; its id adds six characters.", changes="never")
    framework: Literal["nanogpt", "litgpt", "hf", "trl"] = setting(
        ..., "Which kind of training script.", changes="never", nanogpt="train.py"
    )
    method: Literal["auto", "pretrain", "sft", "dpo", "kto", "reward", "grpo"] = setting(
        "auto",
        "What is learnt. auto is pretrain, and sft for trl.",
        changes="never",
        nanogpt="pretrain",
    )
    method_args: dict[str, Any] = setting(
        {}, "The method's own arguments, such as beta and loss for dpo.", changes="resume"
    )
    model: ModelSpec = setting(..., "The network.", changes="never", nanogpt="ModelConfig")
    adapter: AdapterSpec | None = setting(
        None, "Train a low-rank adapter instead of the whole model.", changes="never"
    )
    data: DataSpec = setting(..., "What is read.", changes="never", nanogpt="prepare, sampler")
    batch: BatchSpec = setting(
        BatchSpec(), "How much each step sees.", changes="resume", nanogpt="the loop"
    )
    optimizer: OptimizerSpec = setting(
        OptimizerSpec(), "How gradients become steps.", changes="resume", nanogpt="AdamW"
    )
    schedule: ScheduleSpec = setting(
        ScheduleSpec(), "How the learning rate moves.", changes="resume", nanogpt="schedule"
    )
    steps: Count | None = setting(
        None,
        "Length in optimizer steps. Exactly one of steps, tokens and phases is given.",
        changes="resume",
        unit="optimizer steps",
        nanogpt="the loop",
    )
    tokens: Count | Auto | None = setting(
        None,
        "Length in tokens; becomes steps. auto spends `limits.budget_usd`.",
        changes="resume",
        unit="tokens",
        nanogpt="becomes steps",
    )
    phases: list[PhaseSpec] | None = setting(
        None, "A curriculum, stage by stage.", changes="resume"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16", "fp8"] = setting(
        "auto",
        "Number format of the matrix products. auto takes bf16 where the hardware has it, fp16 on "
        "older GPUs, else fp32. Weights and optimizer state stay fp32.",
        changes="box",
        nanogpt="autocast",
    )
    seed: Seed = setting(
        1337,
        "Seeds weights, data order and dropout. Fixed, so that runs repeat.",
        changes="never",
        nanogpt="torch.manual_seed, the sampler",
    )
    eval: EvalSpec = setting(
        EvalSpec(), "Validation on the held-out split.", changes="resume", nanogpt="the loop"
    )
    checkpoint: CheckpointSpec = setting(
        CheckpointSpec(), "Saved training states.", changes="box", nanogpt="the saver"
    )
    recovery: RecoverySpec = setting(
        RecoverySpec(), "What is done on failures.", changes="resume", nanogpt="supervisor"
    )
    compute: ComputeSpec = setting(
        ComputeSpec(), "What it computes on.", changes="resume", nanogpt="device"
    )
    environment: Literal["auto", "existing"] | EnvironmentSpec = setting(
        "auto",
        "Python environment: auto builds or finds one that can train, existing takes the host's "
        "as it is.",
        changes="resume",
        nanogpt="supervisor",
    )
    env: dict[str, Text] = setting(
        {},
        "Plain environment variables. Never secrets: they would stand in the run's folder.",
        changes="resume",
        nanogpt="the trainer's environment",
    )
    secrets: list[Text] = setting(
        [],
        "Names of environment variables with secrets that the trainer is given. The settings must "
        "allow them; values come from the environment, `secrets.env` in the home, or for HF_TOKEN "
        "Hugging Face's token file.",
        changes="resume",
        nanogpt="the trainer's environment",
    )
    tracking: dict[str, Any] = setting(
        {}, "The framework's own loggers: wandb, tensorboard, mlflow.", changes="resume"
    )
    alerts: list[AlertSpec] = setting(
        [], "Who is told of what.", changes="resume", nanogpt="supervisor"
    )
    host: Name = setting(
        "local",
        "Where it runs: local, debug, a host's name, or kaggle.",
        changes="never",
    )
    limits: LimitsSpec = setting(
        LimitsSpec(), "Where it is ended.", changes="resume", nanogpt="supervisor"
    )
    labels: dict[str, Text] = setting(
        {}, "The user's own marks, to find runs by.", changes="resume", nanogpt="config.json"
    )
    pty: bool = setting(
        False,
        "Give the trainer a pseudo-terminal. Off: a log needs none, and progress bars fill it.",
        changes="resume",
        nanogpt="hold",
    )
