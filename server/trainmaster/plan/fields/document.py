"""The whole spec: what to train, as the user writes it."""

from __future__ import annotations

from typing import Any, Literal

from trainer_runtime.core.config.objectives import ObjectiveName
from trainer_runtime.core.frameworks import FrameworkName, framework_of
from trainmaster.plan.fields.annotations import (
    Auto,
    Count,
    Name,
    Section,
    Seed,
    Text,
    Tokens,
    setting,
)
from trainmaster.plan.fields.compute import ComputeSpec, EnvironmentSpec
from trainmaster.plan.fields.data import DataSpec
from trainmaster.plan.fields.model import AdapterSpec, ModelSpec
from trainmaster.plan.fields.phases import PhaseSpec
from trainmaster.plan.fields.running import AlertSpec, CheckpointSpec, LimitsSpec, RecoverySpec
from trainmaster.plan.fields.script import OF_PROGRAMS, ScriptSpec
from trainmaster.plan.fields.training import BatchSpec, EvalSpec, OptimizerSpec, ScheduleSpec

_SUPERVISOR = "supervisor"


class TrainingSpec(Section):
    """What to train. Immutable; paths are absolute and sources named once `load_spec` made it."""

    @property
    def continues(self) -> bool:
        """Whether the model comes with weights that were trained before."""
        return self.model.path is not None or self.model.hub is not None or self.lacks_weights

    @property
    def step_tokens(self) -> int:
        """`batch.tokens`, or where it is left out its default with room for a micro-batch; of `kto`
        for two rows, which it compares."""
        if "tokens" in self.batch.model_fields_set:
            return self.batch.tokens
        rows = self.batch.micro_batch
        least = rows if isinstance(rows, int) else 2 if self.method == "kto" else 1
        return max(self.batch.tokens, least * self.data.seq_len)

    @property
    def lacks_weights(self) -> bool:
        """Whether weights of the model's shape are to be tuned, and the spec does not name them:
        an adapter presumes them, and so does a published model that is not pre-trained."""
        if self.model.path is not None or self.model.hub is not None:
            return False
        usual = framework_of(self.framework).pretrains
        is_tuned = not usual if self.method == "auto" else self.method != "pretrain"
        return self.adapter is not None or (self.model.preset is not None and is_tuned)

    spec_version: Literal[1] = setting(
        1, "Version of the spec's own format.", changes="never", acts="planning"
    )
    name: Name = setting(
        ...,
        "The run's name; its id adds six characters.",
        changes="never",
    )
    framework: FrameworkName = setting(
        ...,
        "Which kind of training script.",
        changes="never",
    )
    script: ScriptSpec | None = setting(
        None,
        "The program of framework: script.",
        changes="never",
        acts=OF_PROGRAMS,
    )
    method: Literal["auto", "pretrain", "sft", "dpo", "kto", "reward", "grpo"] = setting(
        "auto",
        "The training method. auto is pretrain, and sft for trl.",
        changes="never",
    )
    objective: ObjectiveName = setting(
        "causal",
        "What pretraining predicts. causal: each next token. masked: 15 % of the tokens, hidden as "
        "for BERT, by a model that sees both sides. denoising: spans of three tokens on average, "
        "15 % in all, that an encoder-decoder restores as T5. causal, as most models write text.",
        changes="never",
    )
    method_args: dict[str, Any] = setting(
        {},
        "The method's own arguments, such as beta and loss for dpo; see below. `epochs` may stand "
        "there as the length.",
        changes="resume",
    )
    model: ModelSpec = setting(
        ModelSpec(),
        "The network. It must be given, but for framework: script.",
        changes="never",
    )
    adapter: AdapterSpec | None = setting(
        None,
        "Train a low-rank adapter instead of the whole model.",
        changes="never",
    )
    data: DataSpec = setting(
        DataSpec(sources=[]),
        "The training data. It must be given, but for framework: script.",
        changes="never",
    )
    batch: BatchSpec = setting(
        BatchSpec(),
        "The batch of an optimizer step.",
        changes="resume",
    )
    optimizer: OptimizerSpec = setting(
        OptimizerSpec(),
        "The optimizer.",
        changes="resume",
    )
    schedule: ScheduleSpec = setting(
        ScheduleSpec(),
        "The learning-rate schedule.",
        changes="resume",
    )
    steps: Count | None = setting(
        None,
        "Length in optimizer steps. Exactly one of steps, tokens, phases and, where a model is "
        "tuned, method_args.epochs is given. With framework: script none need be: the program ends "
        "by itself; one that ends before these steps is not complete.",
        changes="resume",
        unit="optimizer steps",
        keeps="schedule",
    )
    tokens: Tokens | Auto | None = setting(
        None,
        "Length in tokens; becomes steps. auto, to pre-train "
        "new weights: 20 an active parameter (Hoffmann et al. 2022), as far as data last for four "
        "passes and `limits` allow.",
        changes="resume",
        unit="tokens",
        acts="steps",
    )
    phases: list[PhaseSpec] | None = setting(
        None,
        "A curriculum, stage by stage; docs/phases.md. `steps` or `tokens` beside it must be their "
        "sum.",
        changes="resume",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16", "fp8"] = setting(
        "auto",
        "Number format of the matrix products. auto takes bf16 where the hardware has it, fp16 on "
        "older GPUs, else fp32. Weights and optimizer state stay fp32.",
        changes="box",
    )
    seed: Seed = setting(
        1337,
        "Seeds weights, data order and dropout. Fixed, so that runs repeat.",
        changes="never",
    )
    eval: EvalSpec = setting(
        EvalSpec(),
        "Validation on the held-out split.",
        changes="resume",
    )
    checkpoint: CheckpointSpec = setting(
        CheckpointSpec(),
        "Saved training states.",
        changes="box",
    )
    recovery: RecoverySpec = setting(
        RecoverySpec(), "What the supervisor does on failures.", changes="resume", acts=_SUPERVISOR
    )
    compute: ComputeSpec = setting(
        ComputeSpec(),
        "Hardware and processes.",
        changes="resume",
    )
    environment: Literal["auto", "existing"] | EnvironmentSpec = setting(
        "auto",
        "Python environment: auto builds or finds one that can train, existing takes the host's "
        "as it is.",
        changes="resume",
        acts=_SUPERVISOR,
    )
    env: dict[str, Text] = setting(
        {},
        "Plain environment variables. Never secrets: they would be stored in the run's folder.",
        changes="resume",
        acts="the trainer's environment",
    )
    secrets: list[Text] = setting(
        [],
        "Names of environment variables with secrets that the trainer is given. The settings must "
        "allow them; values come from the environment, `secrets.env` in the home, or for HF_TOKEN "
        "Hugging Face's token file.",
        changes="resume",
        acts="the trainer's environment",
    )
    tracking: dict[str, Any] = setting(
        {},
        "The framework's own loggers, each true or a mapping with its options: "
        "{tensorboard: true, wandb: {project: demo}}.",
        changes="resume",
    )
    alerts: list[AlertSpec] = setting(
        [],
        "Conditions and the destinations of their messages.",
        changes="resume",
        acts=_SUPERVISOR,
    )
    host: Name = setting(
        "local",
        "Where it runs: local, debug, a host's name, or kaggle. A list such as [gpu1, gpu2] trains "
        "on several hosts at once: the first has the supervisor, the rest are `other_hosts`.",
        changes="never",
        acts="launch",
    )
    other_hosts: list[Name] = setting(
        [],
        "Further hosts of the same training, as `host` given as a list says.",
        changes="never",
    )
    limits: LimitsSpec = setting(
        LimitsSpec(), "Limits of the run.", changes="resume", acts=_SUPERVISOR
    )
    labels: dict[str, Text] = setting(
        {},
        "Labels of the user, to find runs by.",
        changes="resume",
        acts="config.json",
    )
    pty: bool = setting(
        False,
        "Give the trainer a pseudo-terminal. Off: a log needs none, and progress bars fill it.",
        changes="resume",
        acts="hold",
    )
