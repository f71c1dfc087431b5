"""The sections of the spec on hardware, processes and the Python environment."""

from __future__ import annotations

from typing import Literal

from trainmaster.plan.fields.annotations import (
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
from trainmaster.plan.fields.place import NOT_BUILT_YET

_PLANNING = "planning"
_PREPARATION = "preparation"


class ComputeSpec(Section):
    """What the training computes on."""

    gpus: Auto | CountOrZero = setting(
        "auto",
        "GPUs per node; 0 trains on the CPU. auto takes one if the host has one that PyTorch "
        "can use. A resume on more or fewer keeps the batch.",
        changes="resume",
        unit="GPUs",
        keeps="batch",
    )
    gpu: Text | None = setting(
        None,
        "A GPU's name such as h100, to plan for or rent. Null: what the host has.",
        changes="never",
        acts=_PLANNING,
    )
    gpu_memory_gib: Positive | None = setting(
        None,
        "Memory of that GPU. Null: what the host reports, or the table says.",
        changes="never",
        unit="GiB",
        acts=_PLANNING,
    )
    nodes: Count = setting(
        1,
        "Nodes of each job, on a cluster's host. Leave it out where `host` lists several machines.",
        changes="never",
        unit="machines",
    )
    min_nodes: Count | None = setting(
        None,
        "With how many hosts the training may continue where others don't come back within "
        "`recovery.await_nodes`. Each step keeps its batch. Null: with all of them.",
        changes="resume",
        unit="hosts",
    )
    processes: Auto | Count = setting(
        "auto",
        "Ranks per machine. auto is one for each GPU, and a single one on a CPU, whose cores one "
        "process uses by itself. A resume with more or fewer keeps the batch.",
        changes="resume",
        unit="processes",
        keeps="batch",
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
    )
    activation_checkpointing: Auto | bool = setting(
        "auto",
        "Recompute activations in the backward pass instead of keeping them: a third more "
        "computing for a fraction of the memory. auto does so only where nothing else fits.",
        changes="box",
    )
    launcher: Literal["process", "docker"] = setting(
        "process",
        "What the trainer runs as on the host: a process, or a container of compute.image by "
        "Docker or Podman, whichever is there. A Slurm cluster is a host (docs/slurm.md).",
        changes="never",
        acts="hold",
    )
    image: Text | None = setting(
        None,
        "The image to train in, for docker: with Python 3.10 or newer, PyTorch, and what the "
        "framework needs. It is pulled where the host does not have it.",
        changes="never",
        acts="preparation, docker run",
    )
    shm_size: Size = setting(
        "16g",
        "Maximum shared memory of the container, for docker: data loaders and NCCL use it.",
        changes="never",
        unit="size",
        acts="docker run --shm-size",
    )
    preemptible: bool = setting(
        False,
        "Accept a machine that may be taken away.",
        changes="never",
        acts=NOT_BUILT_YET,
    )
    threads: Auto | Count = setting(
        "auto",
        "CPU threads of each process. auto divides the cores that the quota grants: more threads "
        "are much slower.",
        changes="resume",
        unit="threads",
        acts="torch.set_num_threads, OMP_NUM_THREADS",
    )
    compile: Auto | bool = setting(
        "auto",
        "Use torch.compile. auto does on GPUs. On CPUs it gains up to a fifth after minutes of "
        "compiling, but a resumed run's losses are no longer the same to the last bit.",
        changes="resume",
    )
    deterministic: Auto | bool = setting(
        "auto",
        "Use operations alone whose results are the same each time, so that a resumed run's losses "
        "equal an uninterrupted one's to the last bit. auto does on GPUs in nanogpt's script. In "
        "the others true ends a training that meets an operation without such a form. CPUs need "
        "it only where the model is compiled.",
        changes="resume",
    )
    fp8_lm_head: bool = setting(
        False,
        "Compute the output layer's matrix products and their gradients in fp8, in nanogpt's "
        "script on GPUs with fp8 (H100, L4, and newer): faster where the vocabulary is large "
        "beside the model, and with less memory for large micro-batches. Rounding adds about 3 % "
        "to the gradients.",
        changes="resume",
    )
    loss: Literal["whole", "chunked", "liger"] = setting(
        "whole",
        "How the loss is computed from the output layer. chunked holds the logits of 4,096 tokens "
        "at a time, which saves most of a large vocabulary's memory at equal arithmetic; liger is "
        "the same as one kernel of the package liger-kernel, on GPUs. whole holds all of them.",
        changes="resume",
    )


class EnvironmentSpec(Section):
    """A Python environment that is described rather than chosen by name."""

    python: FilePath | None = setting(
        None,
        "The interpreter of the host to use, with its packages: a path there, or a name on its "
        "search path. Null searches for one that can train.",
        changes="resume",
        acts=_PREPARATION,
    )
    requirements: FilePath | None = setting(
        None,
        "A requirements file of this machine, to install besides what the training needs: on top "
        "of the interpreter where its PyTorch computes, which stays as it is.",
        changes="never",
        acts=_PREPARATION,
    )
    setup: FilePath | None = setting(
        None,
        "A shell script of this machine that the host runs in the run's folder before each "
        "attempt. It may run again after a kill.",
        changes="never",
        acts=_PREPARATION,
    )
    modules: list[Text] | None = setting(
        None,
        "Environment modules to load, on clusters.",
        changes="resume",
        acts="preparation, hold",
    )
    wheels: FilePath | None = setting(
        None,
        "A folder of wheels, of this machine or as host:/path of the host. Packages are installed "
        "from there only, without the internet.",
        changes="never",
        acts=_PREPARATION,
    )
