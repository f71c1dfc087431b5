"""The sections of the spec that say how and where it runs: checkpoints, recovery, limits."""

from __future__ import annotations

from typing import Literal

from trainmaster.spec.annotations import (
    Auto,
    Count,
    CountOrZero,
    Duration,
    FilePath,
    Name,
    Positive,
    Section,
    Size,
    Text,
    setting,
)


class CheckpointSpec(Section):
    """When training states are saved, and which are kept."""

    every: Auto | Count | Duration = setting(
        "auto",
        "Steps (a plain number) or time between checkpoints. auto goes by the job's length and is "
        "decided again on the box after 20 measured steps.",
        changes="box",
        unit="steps or duration",
        nanogpt="the saver",
    )
    keep_latest: Count = setting(
        3,
        "How many of the newest stay. Three survive two damaged ones.",
        changes="resume",
        unit="checkpoints",
        nanogpt="the saver",
    )
    keep_best: CountOrZero = setting(
        1,
        "How many of the best by `metric` stay.",
        changes="resume",
        unit="checkpoints",
        nanogpt="the saver",
    )
    keep_every_steps: Count | None = setting(
        None,
        "Also keep each one whose step this divides. Null keeps none: it fills disks.",
        changes="resume",
        unit="steps",
        nanogpt="the saver",
    )
    metric: Text = setting(
        "val_loss",
        "What best means: val_loss, val_perplexity, or val_loss/<source>; lower is better.",
        changes="resume",
        nanogpt="the saver",
    )
    mirror: Text | None = setting(
        None,
        "Where verified checkpoints are copied to: operator (the machine that launched), "
        "host:/path (another disk of the box) or s3://….",
        changes="resume",
        nanogpt="supervisor",
    )


class RecoverySpec(Section):
    """What the supervisor does by itself when something goes wrong."""

    max_restarts: CountOrZero = setting(
        3,
        "Restarts without a newer verified checkpoint in between. Three tell bad luck from a "
        "fault that stays.",
        changes="resume",
        unit="restarts",
        nanogpt="supervisor",
    )
    on_crash: Literal["resume", "stop"] = setting(
        "resume",
        "After a crash that a restart may cure.",
        changes="resume",
        nanogpt="supervisor",
    )
    on_nan: Literal["rewind_skip_data", "stop"] = setting(
        "rewind_skip_data",
        "After a loss or gradient that is not finite. The default goes back to the last "
        "checkpoint and leaves out the data in between.",
        changes="resume",
        nanogpt="supervisor",
    )
    on_spike: Literal["warn", "rewind_skip_data", "rewind_halve_lr", "stop"] = setting(
        "warn",
        "After a jump of the loss that stays: 50 steps, or two of over three times the loss. The "
        "default only tells: most spikes come back by themselves. rewind_… go back to the last "
        "checkpoint before it and leave out the data, or halve the learning rate. So too after a "
        "divergence, a loss that stays at over half as much again as its lowest.",
        changes="resume",
        nanogpt="supervisor",
    )
    on_oom: Literal["patch", "stop"] = setting(
        "patch",
        "After running out of memory. The default halves the micro-batch and doubles the "
        "accumulation: each step still sees the same tokens, and the same again would fail again.",
        changes="resume",
        nanogpt="supervisor",
    )
    on_stall: Literal["stacks_restart", "stacks_stop"] = setting(
        "stacks_restart",
        "When steps stop coming for five times as long as the run's own pace explains, at least "
        "ten minutes: look at the stacks, then restart from the last checkpoint, since a hung "
        "trainer never ends by itself.",
        changes="resume",
        nanogpt="supervisor",
    )
    decide_within: Duration | None = setting(
        None,
        "Before a restart that changes or leaves out something, wait this long for the operator "
        "to choose first (resume, or stop). Null waits for nobody: at night nobody chooses.",
        changes="resume",
        unit="duration",
        nanogpt="supervisor",
    )


class ComputeSpec(Section):
    """What the training computes on."""

    gpus: Auto | CountOrZero = setting(
        "auto",
        "GPUs per node; 0 trains on the CPU. auto takes one if the host has one that PyTorch "
        "can use.",
        changes="never",
        unit="GPUs",
        nanogpt="device",
    )
    gpu: Text | None = setting(
        None,
        "A GPU's name such as h100, to plan for or rent. Null: what the host has.",
        changes="never",
    )
    gpu_memory_gib: Positive | None = setting(
        None,
        "Memory of that GPU. Null: what the host reports, or the table says.",
        changes="never",
        unit="GiB",
    )
    nodes: Count = setting(1, "Machines.", changes="never", unit="machines")
    processes: Auto | Count = setting(
        "auto",
        "Ranks per machine. auto is one for each GPU, and a single one on a CPU, whose cores one "
        "process uses by itself.",
        changes="never",
        unit="processes",
    )
    strategy: Literal[
        "auto",
        "single",
        "ddp",
        "fsdp",
        "zero1",
        "zero2",
        "zero3",
        "zero3_offload",
        "tp",
    ] = setting(
        "auto",
        "How several processes share the work; auto is a single process where there is one.",
        changes="resume",
        nanogpt="a single process",
    )
    activation_checkpointing: Auto | bool = setting(
        "auto",
        "Compute activations anew in the backward pass instead of keeping them: a third more "
        "computing for a fraction of the memory. auto does where nothing else makes it fit.",
        changes="resume",
    )
    launcher: Literal["process", "docker", "slurm"] = setting(
        "process", "What holds the run on its host.", changes="never"
    )
    image: Text | None = setting(None, "Container image, for docker.", changes="never")
    shm_size: Size = setting(
        "16g", "Shared memory of the container, for docker.", changes="never", unit="size"
    )
    preemptible: bool = setting(False, "Accept a machine that may be taken away.", changes="never")
    threads: Auto | Count = setting(
        "auto",
        "CPU threads of the trainer. auto takes the cores that the quota grants: more of them "
        "make training collapse.",
        changes="resume",
        unit="threads",
        nanogpt="torch.set_num_threads, OMP_NUM_THREADS",
    )
    compile: Auto | bool = setting(
        "auto",
        "Use torch.compile. auto does on GPUs: on CPUs it was measured to gain nothing.",
        changes="resume",
        nanogpt="torch.compile",
    )


class EnvironmentSpec(Section):
    """A Python environment that is described rather than chosen by name."""

    python: FilePath | None = setting(
        None,
        "The box's interpreter to use, with its packages: a path there, or a name on its search "
        "path. Null looks for one that can train.",
        changes="resume",
        nanogpt="preparation",
    )
    requirements: FilePath | None = setting(
        None,
        "A requirements file of this machine, to install besides what the training needs: on top "
        "of the interpreter where its PyTorch computes, which stays as it is.",
        changes="never",
        nanogpt="preparation",
    )
    setup: FilePath | None = setting(
        None,
        "A shell script of this machine that the box runs first, in the run's folder, before each "
        "attempt. It may run again after a kill.",
        changes="never",
        nanogpt="preparation",
    )
    modules: list[Text] | None = setting(
        None,
        "Environment modules to load, on clusters.",
        changes="resume",
        nanogpt="preparation, hold",
    )
    wheels: FilePath | None = setting(
        None,
        "A folder of wheels, of this machine or as host:/path of the box. Packages come from "
        "there alone, without the Internet.",
        changes="never",
        nanogpt="preparation",
    )


class AlertSpec(Section):
    """A condition on a metric or a state, and who is told."""

    name: Name = setting(..., "What the message calls it.", changes="resume", nanogpt="supervisor")
    severity: Literal["info", "warning", "critical"] = setting(
        "warning", "How loud.", changes="resume", nanogpt="supervisor"
    )
    when: Text = setting(
        ...,
        'For example "val_loss > 3.5 for 3", "finding critical", "state failed", "silence 10m"; '
        "see alerts.md.",
        changes="resume",
        nanogpt="supervisor",
    )
    to: Text = setting(
        ..., "A destination named in the settings.", changes="resume", nanogpt="supervisor"
    )


class LimitsSpec(Section):
    """Where the run is ended, over all its attempts."""

    max_runtime: Auto | Duration = setting(
        "auto",
        "Longest time of training. auto is 1.5 times the estimate, at least 24 h.",
        changes="resume",
        unit="duration",
        nanogpt="supervisor",
    )
    budget_usd: Positive | None = setting(
        None, "The most it may cost.", changes="resume", unit="US dollars"
    )
