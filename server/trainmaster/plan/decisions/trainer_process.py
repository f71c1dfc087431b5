"""Chooses threads, compilation and environment variables of each process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainer_runtime.core.environment.gpus import FIRST_FP8_CAPABILITY, FP8_MULTIPLE, find_gpu
from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.container import is_contained
from trainmaster.plan.decisions.hardware import CPUS_PER_GPU, cores_of_gpus, usable_cores
from trainmaster.plan.decisions.memory import Sharing
from trainmaster.plan.decisions.model import Network
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.facts import GpuFacts, HostFacts
from trainmaster.plan.frameworks import framework_of, method_of
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

# Compiling a model takes about a minute, which shorter runs would not recover.
_STEPS_WORTH_COMPILING = 200
WHOLE_WEIGHTS = ("single", "ddp", "zero1", "zero2")


def choose_threads(spec: TrainingSpec, facts: HostFacts, target: Target, ledger: Ledger) -> int:
    """CPU threads of one process."""
    if isinstance(spec.compute.threads, int):
        return spec.compute.threads
    cores, whose = _cores(facts, target)
    threads = max(1, cores // target.node_processes)
    reason = f"{whose}; more threads are much slower."
    if target.node_processes > 1:
        reason = f"{whose}, for {target.node_processes} processes."
        if target.node_processes > cores:
            ledger.warn(
                f"{target.node_processes} processes on {cores} cores compete: they make "
                "the training slower, not faster."
            )
    ledger.decide("compute.threads", threads, reason)
    return threads


def _cores(facts: HostFacts, target: Target) -> tuple[int, str]:
    """The cores that the training gets on each machine, and who gives them."""
    if not target.on_host:
        cores = CPUS_PER_GPU * target.gpus
        return cores, f"A machine of such GPUs has about {CPUS_PER_GPU} cores for each"
    if facts.slurm is not None and target.gpus:
        cores = cores_of_gpus(facts.slurm, target.gpus)
        return cores, f"Jobs ask for {cores} cores, the share of a node that belongs to the GPUs"
    return usable_cores(facts), f"The host grants {facts.cores:g} cores"


def with_least_threads(
    spec: TrainingSpec, config: Mapping[str, Any], others: Iterable[HostFacts]
) -> dict[str, Any]:
    """The config of a training on several hosts, each process with no more threads than the host
    with the fewest cores has for it. `others`: all hosts but the first."""
    compute = config["compute"]
    if isinstance(spec.compute.threads, int) or compute["threads"] is None:
        return dict(config)
    of_each = compute["processes"] // compute["nodes"]
    least = [max(1, usable_cores(host) // of_each) for host in others]
    return {**config, "compute": {**compute, "threads": min([compute["threads"], *least])}}


def choose_compile(
    spec: TrainingSpec,
    facts: HostFacts,
    target: Target,
    sharing: Sharing,
    steps: int,
    ledger: Ledger,
) -> bool:
    """Whether torch.compile is used."""
    if isinstance(spec.compute.compile, bool):
        return spec.compute.compile
    if target.device == "cpu":
        chosen = False
        reason = "On CPUs it gains up to a fifth, but equal runs may differ in their last bits."
    elif is_contained(spec):
        chosen = False
        reason = "Not known whether the image has a C compiler, which torch.compile needs."
    elif facts.c_compiler is False and target.on_host:
        chosen, reason = False, "The host has no C compiler, which torch.compile needs."
    elif method_of(spec) != "pretrain":
        chosen, reason = False, "Batches differ in length: it would recompile again and again."
    elif sharing.strategy not in WHOLE_WEIGHTS:
        chosen, reason = False, "Weights are gathered layer by layer, which breaks its graphs."
    elif steps < _STEPS_WORTH_COMPILING:
        chosen, reason = False, f"{steps} steps would not recover the minute of compiling."
    else:
        chosen, reason = True, "Compiled kernels are faster on GPUs."
    ledger.decide("compute.compile", chosen, reason)
    return chosen


def choose_deterministic(spec: TrainingSpec, target: Target, ledger: Ledger) -> bool:
    """Whether operations without a deterministic form are refused, and the others use theirs."""
    if isinstance(spec.compute.deterministic, bool):
        return spec.compute.deterministic
    if target.device == "cpu":  # nothing is open there: no decision to show
        return False
    if framework_of(spec).is_deterministic:
        chosen, reason = (
            True,
            "A resumed run repeats an uninterrupted one's losses to the last bit.",
        )
    else:
        chosen = False
        reason = (
            "The framework may use operations without a deterministic form: on GPUs, a resumed "
            "run's losses can differ in their last bits."
        )
    ledger.decide("compute.deterministic", chosen, reason)
    return chosen


def checked_fp8_lm_head(
    spec: TrainingSpec, network: Network, facts: HostFacts, target: Target
) -> bool:
    """Whether the output layer computes in fp8.

    Raises:
        PlanError: INVALID_VALUE, the device, the precision or the model's width is another.
    """
    if not spec.compute.fp8_lm_head:
        return False
    if target.precision != "bf16" or target.device == "cpu" or not _has_fp8(facts, target):
        raise _impossible_in_fp8(
            f"the training computes on {target.name} in {target.precision}",
            "train in bf16 on a GPU with fp8, such as an H100 or an L4",
        )
    if network.architecture is not None and network.architecture.d_model % FP8_MULTIPLE:
        raise _impossible_in_fp8(
            f"model.d_model {network.architecture.d_model} is not a multiple of {FP8_MULTIPLE}",
            f"choose a multiple of {FP8_MULTIPLE}",
        )
    return True


def _impossible_in_fp8(why: str, otherwise: str) -> PlanError:
    return PlanError(
        "INVALID_VALUE",
        f"`compute.fp8_lm_head` is true, but {why}.",
        f"Set it to false, or {otherwise}.",
        field="compute.fp8_lm_head",
    )


def _has_fp8(facts: HostFacts, target: Target) -> bool:
    gpus = [gpu for gpu in facts.gpus if gpu.index in target.indexes]
    if not gpus:
        return target.gpu is None or target.gpu.fp8
    return all(map(_gpu_has_fp8, gpus))


def _gpu_has_fp8(gpu: GpuFacts) -> bool:
    if gpu.capability is not None:
        major, minor = FIRST_FP8_CAPABILITY
        return gpu.capability >= major + minor / 10
    gpu_model = find_gpu(gpu.name)
    return gpu_model is None or gpu_model.fp8


def choose_variables(
    spec: TrainingSpec, target: Target, facts: HostFacts, ledger: Ledger
) -> dict[str, str]:
    """The trainer's plain environment variables: the spec's, and the GPUs that it may see."""
    name = "CUDA_VISIBLE_DEVICES"
    variables = dict(spec.env)
    if facts.slurm is not None:  # which GPUs a job gets is for the scheduler to say
        return variables
    if target.indexes and len(facts.gpus) > len(target.indexes) and name not in variables:
        variables[name] = ",".join(str(index) for index in target.indexes)
        which = "GPU" if len(target.indexes) == 1 else "GPUs"
        ledger.decide(f"env.{name}", variables[name], f"The {which} with the most free memory.")
    return variables
