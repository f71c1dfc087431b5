"""Chooses what the training computes on: the CPU, a GPU of the host, or a GPU to plan for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainer_runtime.core.environment.gpus import find_gpu, gpu_names, slug
from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.hardware import best_cpu_precision, best_gpu_precision
from trainmaster.plan.decisions.nodes import with_nodes
from trainmaster.plan.decisions.target import GPU_SHARE, Target
from trainmaster.plan.facts import GpuFacts, HostFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

# What a process may count on of the host's memory that is free now.
_CPU_SHARE = 0.9


def choose_target(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> Target:
    """The device and precision that the spec asks for, or the best that the host has.

    Raises:
        PlanError: GPU_NOT_FOUND, or INVALID_VALUE for a precision that the device can't do; as
            `with_nodes`.
    """
    wanted = spec.compute.gpus
    if spec.compute.gpu is not None:
        if wanted == 0:
            raise PlanError(
                "INVALID_VALUE",
                f"`compute.gpus` is 0, but `compute.gpu` names {spec.compute.gpu!r}.",
                "Remove compute.gpu to train on the CPU, or set compute.gpus to 1.",
                field="compute.gpus",
            )
        target = _named_gpu(spec, facts, ledger)
    elif wanted == 0:
        target = _cpu(spec, facts)
    elif isinstance(wanted, int):
        target = _host_gpus(spec, facts, wanted)
    else:
        target = _best_device(spec, facts, ledger)
    target = with_nodes(spec, facts, _with_processes(spec, target, ledger), ledger)
    return _with_precision(spec, target, facts, ledger)


def _with_processes(spec: TrainingSpec, target: Target, ledger: Ledger) -> Target:
    wanted = spec.compute.processes
    if target.gpus and isinstance(wanted, int) and wanted != target.gpus:
        raise PlanError(
            "INVALID_VALUE",
            f"`compute.processes` is {wanted}, but each of the {target.gpus} GPUs takes one.",
            "Leave compute.processes at auto, and say by compute.gpus how many take part.",
            field="compute.processes",
        )
    if target.gpus:
        if target.gpus > 1:
            ledger.decide("compute.processes", target.gpus, "One for each GPU.")
        return replace(target, processes=target.gpus)
    processes = wanted if isinstance(wanted, int) else 1
    return replace(target, processes=processes, memory_gib=target.memory_gib / processes)


def _best_device(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> Target:
    if not facts.gpus:
        ledger.decide("compute.gpus", 0, "The host has no GPU that nvidia-smi lists.")
        return _cpu(spec, facts)
    if facts.torch is not None and not facts.torch.cuda_available:
        ledger.decide("compute.gpus", 0, "PyTorch here can't use the host's GPU.")
        ledger.warn(
            f"The host has a {facts.gpus[0].name}, but PyTorch {facts.torch.version} can't use it."
        )
        return _cpu(spec, facts)
    target = _host_gpus(spec, facts, 1)
    ledger.decide("compute.gpus", 1, f"The host has a {target.name}.")
    return target


def _cpu(spec: TrainingSpec, facts: HostFacts) -> Target:
    if spec.compute.gpu_memory_gib is not None:
        raise PlanError(
            "INVALID_VALUE",
            "`compute.gpu_memory_gib` is given, but the training computes on the CPU.",
            "Name the GPU to plan for under compute.gpu, or remove compute.gpu_memory_gib.",
            field="compute.gpu_memory_gib",
        )
    return Target("cpu", "cpu", facts.memory_available_gib * _CPU_SHARE, "auto")


def _host_gpus(spec: TrainingSpec, facts: HostFacts, count: int) -> Target:
    if not facts.gpus:
        raise _not_found(
            f"`compute.gpus` is {spec.compute.gpus}, but {facts.hostname} has no GPU.",
            "Set compute.gpus to 0 or auto, or name the GPU to plan for under compute.gpu.",
        )
    if facts.torch is not None and not facts.torch.cuda_available:
        raise _not_found(
            f"`compute.gpus` is {spec.compute.gpus}, but PyTorch {facts.torch.version} of "
            f"{facts.hostname} can't use its GPU.",
            "Install a PyTorch with CUDA that suits the driver, or set compute.gpus to 0.",
        )
    if count > len(facts.gpus):
        raise _not_found(
            f"`compute.gpus` is {count}, but {facts.hostname} has {len(facts.gpus)}.",
            f"Set compute.gpus to at most {len(facts.gpus)}, or name the GPU to plan for under "
            "compute.gpu.",
        )
    return _target_of(_chosen(spec, facts.gpus, count), spec)


def _chosen(spec: TrainingSpec, gpus: Sequence[GpuFacts], count: int) -> list[GpuFacts]:
    """The GPUs that the user made visible, or those with the most free memory."""
    visible = [part.strip() for part in spec.env.get("CUDA_VISIBLE_DEVICES", "").split(",")]

    def preference(gpu: GpuFacts) -> tuple[int, float]:
        index = str(gpu.index)
        place = visible.index(index) if index in visible else len(visible)
        return place, -gpu.memory_free_gib

    return sorted(gpus, key=preference)[:count]


def _target_of(gpus: Sequence[GpuFacts], spec: TrainingSpec) -> Target:
    least = min(gpus, key=lambda gpu: gpu.memory_free_gib)
    memory_gib = spec.compute.gpu_memory_gib or least.memory_free_gib
    entry = find_gpu(least.name, least.memory_gib)
    return Target(
        "cuda",
        least.name,
        memory_gib * GPU_SHARE,
        "auto",
        entry,
        tuple(sorted(gpu.index for gpu in gpus)),
        gpus=len(gpus),
    )


def _named_gpu(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> Target:
    name = str(spec.compute.gpu)
    entry = find_gpu(name, spec.compute.gpu_memory_gib)
    count = spec.compute.gpus if isinstance(spec.compute.gpus, int) else 1

    def is_named(gpu: GpuFacts) -> bool:
        same_entry = entry is not None and find_gpu(gpu.name, gpu.memory_gib) == entry
        return same_entry or slug(name) in slug(gpu.name)

    named = [gpu for gpu in facts.gpus if is_named(gpu)]
    if len(named) >= count:
        return _target_of(_chosen(spec, named, count), spec)
    memory_gib = spec.compute.gpu_memory_gib or (entry.memory_gib if entry is not None else None)
    if memory_gib is None:
        raise _not_found(
            f"`compute.gpu` is {name!r}, which {facts.hostname} does not have and the table of "
            "GPUs does not know.",
            f"Name one of {gpu_names()}, or give compute.gpu_memory_gib as well.",
            field="compute.gpu",
        )
    has = f"only {len(named)}" if named else "no"
    ledger.warn(
        f"{facts.hostname} has {has} {name}: this plan is for such a machine and can't be launched "
        "here."
    )
    gpu_name = entry.name if entry is not None else name
    usable_gib = memory_gib * GPU_SHARE
    return Target("cuda", gpu_name, usable_gib, "auto", entry, on_host=False, gpus=count)


def _with_precision(spec: TrainingSpec, target: Target, facts: HostFacts, ledger: Ledger) -> Target:
    chosen = next((gpu for gpu in facts.gpus if gpu.index in target.indexes), None)
    capability = chosen.capability if chosen is not None else None
    if target.device == "cpu":
        best, reason = best_cpu_precision(facts)
        if _is_zero(spec):
            best, reason = "fp32", "DeepSpeed under Trainer has bf16 on GPUs alone."
    else:
        torch = facts.torch if target.on_host else None
        best, reason = best_gpu_precision(torch, target.gpu, capability)
    precision: str = spec.precision
    if precision == "auto":
        precision = best
        ledger.decide("precision", precision, reason)
    elif precision == "fp16" and target.device == "cpu":
        raise _impossible(precision, "the CPU", f"Set precision to auto or {best}.")
    elif precision == "bf16" and best == "fp16":
        raise _impossible(precision, target.name, "Set precision to auto or fp16.")
    elif precision == "bf16" and target.device == "cpu" and _is_zero(spec):
        raise _impossible(precision, "DeepSpeed on a CPU", "Set precision to auto or fp32.")
    elif precision == "bf16" and best == "fp32":
        ledger.warn("The CPU has no bf16 instructions: fp32 would be faster than bf16.")
    return replace(target, precision=precision)


def _is_zero(spec: TrainingSpec) -> bool:
    return spec.compute.strategy.startswith("zero")


def _not_found(message: str, fix: str, field: str = "compute.gpus") -> PlanError:
    return PlanError("GPU_NOT_FOUND", message, fix, field=field)


def _impossible(precision: str, device: str, fix: str) -> PlanError:
    return PlanError(
        "INVALID_VALUE",
        f"`precision` is {precision}, in which {device} can't train.",
        fix,
        field="precision",
    )
