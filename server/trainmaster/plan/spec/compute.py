"""The sections of the spec on hardware, processes and the Python environment."""

from __future__ import annotations

from typing import Any, Literal

from trainmaster.plan.spec.annotations import (
    Auto,
    Count,
    CountOrZero,
    FilePath,
    Positive,
    Section,
    Size,
    Text,
    setting,
)
from trainmaster.plan.spec.places import everywhere, lands, not_built, nowhere, only, such

SINGLE = "nanogpt's script is a single process: take hf or litgpt for several"
_ALONE = ("auto", "single")
_PLANNING = everywhere("planning")
_PREPARATION = everywhere("preparation")


def _one_or_none(value: Any) -> bool:
    return value in ("auto", 0, 1)


class ComputeSpec(Section):
    """What the training computes on."""

    gpus: Auto | CountOrZero = setting(
        "auto",
        "GPUs per node; 0 trains on the CPU. auto takes one if the host has one that PyTorch "
        "can use. A resume on more or fewer keeps the batch.",
        changes="resume",
        unit="GPUs",
        lands=lands(
            nanogpt=such("device", _one_or_none, "auto, 0 or 1", lacks=SINGLE),
            litgpt="devices",
            hf="ranks of the launcher, TrainingArguments.use_cpu",
            script="{gpus} in the command",
        ),
    )
    gpu: Text | None = setting(
        None,
        "A GPU's name such as h100, to plan for or rent. Null: what the host has.",
        changes="never",
        lands=_PLANNING,
    )
    gpu_memory_gib: Positive | None = setting(
        None,
        "Memory of that GPU. Null: what the host reports, or the table says.",
        changes="never",
        unit="GiB",
        lands=_PLANNING,
    )
    nodes: Count = setting(
        1,
        "Nodes of each job, on a cluster's host. Leave it out where `host` lists several machines.",
        changes="never",
        unit="machines",
        lands=lands(
            nanogpt=only("one machine", 1, lacks=SINGLE),
            litgpt="num_nodes; the job",
            hf="torchrun; the job",
            script=only("one machine", 1),
        ),
    )
    min_nodes: Count | None = setting(
        None,
        "With how many hosts the training may continue where others don't come back within "
        "`recovery.await_nodes`. Each step keeps its batch. Null: with all of them.",
        changes="resume",
        unit="hosts",
        lands=lands(
            nanogpt=nowhere(SINGLE),
            litgpt="supervisor",
            hf="supervisor",
            script=nowhere("a program's batch is its own"),
        ),
    )
    processes: Auto | Count = setting(
        "auto",
        "Ranks per machine. auto is one for each GPU, and a single one on a CPU, whose cores one "
        "process uses by itself. A resume with more or fewer keeps the batch.",
        changes="resume",
        unit="processes",
        lands=lands(
            nanogpt=only("one process", "auto", 1, lacks=SINGLE),
            litgpt="devices",
            hf="accelerate_config.yaml: num_processes",
            script="{processes} in the command",
        ),
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
        "How several processes share the work. auto is single for one of them; for several ddp, "
        "which keeps the whole model in each, while that fits, then what shares the state among "
        "them: fsdp for litgpt, zero2 and zero3 for hf and trl.",
        changes="resume",
        lands=lands(
            nanogpt=only("one process", *_ALONE, lacks=SINGLE),
            litgpt=only(
                "the wrapper's Fabric strategy",
                *_ALONE,
                "ddp",
                "fsdp",
                lacks="LitGPT has ddp and fsdp alone; hf has DeepSpeed",
            ),
            hf=only(
                "accelerate_config.yaml: distributed_type; ds_config.json",
                *_ALONE,
                "ddp",
                "fsdp",
                "zero1",
                "zero2",
                "zero3",
                "zero3_offload",
            ),
        ),
    )
    activation_checkpointing: Auto | bool = setting(
        "auto",
        "Recompute activations in the backward pass instead of keeping them: a third more "
        "computing for a fraction of the memory. auto does so only where nothing else fits.",
        changes="box",
        lands=lands(
            nanogpt=only("kept", "auto", False, lacks="nanogpt's script keeps its activations"),
            litgpt="the wrapper's Fabric strategy",
            hf="TrainingArguments.gradient_checkpointing",
        ),
    )
    launcher: Literal["process", "docker"] = setting(
        "process",
        "What the trainer runs as on the host: a process, or a container of compute.image by "
        "Docker or Podman, whichever is there. A Slurm cluster is a host (docs/slurm.md).",
        changes="never",
        lands=everywhere("hold"),
    )
    image: Text | None = setting(
        None,
        "The image to train in, for docker: with Python 3.10 or newer, PyTorch, and what the "
        "framework needs. It is pulled where the host does not have it.",
        changes="never",
        lands=everywhere("preparation, docker run"),
    )
    shm_size: Size = setting(
        "16g",
        "Maximum shared memory of the container, for docker: data loaders and NCCL use it.",
        changes="never",
        unit="size",
        lands=everywhere("docker run --shm-size"),
    )
    preemptible: bool = setting(
        False,
        "Accept a machine that may be taken away.",
        changes="never",
        lands=not_built(),
    )
    threads: Auto | Count = setting(
        "auto",
        "CPU threads of each process. auto divides the cores that the quota grants: more threads "
        "are much slower.",
        changes="resume",
        unit="threads",
        lands=everywhere("torch.set_num_threads, OMP_NUM_THREADS", script="OMP_NUM_THREADS"),
    )
    compile: Auto | bool = setting(
        "auto",
        "Use torch.compile. auto does on GPUs. On CPUs it gains up to a fifth after minutes of "
        "compiling, but a resumed run's losses are no longer the same to the last bit.",
        changes="resume",
        lands=lands(
            nanogpt="torch.compile",
            litgpt="TORCH_COMPILE_DISABLE where it is off",
            hf="TrainingArguments.torch_compile",
        ),
    )
    deterministic: Auto | bool = setting(
        "auto",
        "Use operations alone whose results are the same each time, so that a resumed run's losses "
        "equal an uninterrupted one's to the last bit. auto does on GPUs in nanogpt's script. In "
        "the others true ends a training that meets an operation without such a form. CPUs need "
        "it only where the model is compiled.",
        changes="resume",
        lands=lands(
            nanogpt="torch.use_deterministic_algorithms",
            litgpt="the wrapper: torch.use_deterministic_algorithms",
            hf="torch.use_deterministic_algorithms",
            script=nowhere("what a program computes by is its own"),
        ),
    )
    fp8_lm_head: bool = setting(
        False,
        "Compute the output layer's matrix products and their gradients in fp8, in nanogpt's "
        "script on GPUs with fp8 (H100, L4, and newer): faster where the vocabulary is large "
        "beside the model, and with less memory for large micro-batches. Rounding adds about 3 % "
        "to the gradients.",
        changes="resume",
        lands=lands(
            nanogpt="torch._scaled_mm",
            litgpt=nowhere("the framework's loss is its own"),
            hf=nowhere("the framework's loss is its own"),
        ),
    )


class EnvironmentSpec(Section):
    """A Python environment that is described rather than chosen by name."""

    python: FilePath | None = setting(
        None,
        "The interpreter of the host to use, with its packages: a path there, or a name on its "
        "search path. Null searches for one that can train.",
        changes="resume",
        lands=_PREPARATION,
    )
    requirements: FilePath | None = setting(
        None,
        "A requirements file of this machine, to install besides what the training needs: on top "
        "of the interpreter where its PyTorch computes, which stays as it is.",
        changes="never",
        lands=_PREPARATION,
    )
    setup: FilePath | None = setting(
        None,
        "A shell script of this machine that the host runs in the run's folder before each "
        "attempt. It may run again after a kill.",
        changes="never",
        lands=_PREPARATION,
    )
    modules: list[Text] | None = setting(
        None,
        "Environment modules to load, on clusters.",
        changes="resume",
        lands=everywhere("preparation, hold"),
    )
    wheels: FilePath | None = setting(
        None,
        "A folder of wheels, of this machine or as host:/path of the host. Packages are installed "
        "from there only, without the internet.",
        changes="never",
        lands=_PREPARATION,
    )
