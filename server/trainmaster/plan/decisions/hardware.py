"""The precision that hardware supports, and the GPUs that suit a model's size."""

from __future__ import annotations

from trainer_runtime.core.environment.gpus import Gpu
from trainmaster.plan.facts import HostFacts, SlurmFacts, TorchFacts

# About two cores; separates trainings that need no GPU from those that do.
_MODEST_CPU_FLOPS = 1e11
_FIRST_BF16_CAPABILITY = 8.0
# GPU nodes have 64 to 128 cores for 8 GPUs.
CPUS_PER_GPU = 8


def best_cpu_precision(facts: HostFacts) -> tuple[str, str]:
    """The precision that `auto` becomes on a CPU, and why: bf16 with AVX512_BF16 or AMX."""
    if facts.bf16_cpu:
        return "bf16", "The CPU multiplies bf16 in hardware, measured at 2.75 times fp32."
    return "fp32", "The CPU has no bf16 instructions (AVX512_BF16 or AMX)."


def best_gpu_precision(
    torch: TorchFacts | None, gpu: Gpu | None, capability: float | None
) -> tuple[str, str]:
    """The precision that `auto` becomes on a GPU, and why: bf16 from Ampere (capability 8) on.

    `torch` is None where there is none that could speak for the device.
    """
    if gpu is not None:
        able = gpu.bf16
    elif torch is not None:
        able = torch.bf16_gpu
    else:
        able = capability is None or capability >= _FIRST_BF16_CAPABILITY
    if able:
        return "bf16", "The GPU has bf16, which needs no loss scaling."
    return "fp16", "The GPU is older than Ampere and has fp16 but not bf16."


def recommend_gpu(parameters: int, total_flops: float) -> tuple[str, str]:
    """Which GPUs suit a model of this size, and why.

    Sizes: below 1B one A100-40, 1-7B one to four A100-80, 7-13B four to eight, 13-70B eight or
    more H100, above sixteen or more.
    """
    if total_flops < _MODEST_CPU_FLOPS * 3600:
        return "none", "A few CPU cores finish this within about an hour."
    if parameters < 1e9:
        return "1x a100-40", "Below 1B parameters, state and activations fit one 40 GB GPU."
    if parameters < 7e9:
        return "1-4x a100", "1B to 7B parameters take 16 to 112 GB of training state."
    if parameters < 13e9:
        return "4-8x a100", "7B to 13B parameters take 112 to 208 GB of training state."
    if parameters < 70e9:
        return "8x h100", "13B to 70B parameters want eight GPUs or more, with fast links."
    return "16x h100", "Above 70B parameters, training state alone is over 1 TB."


def usable_cores(facts: HostFacts) -> int:
    """Threads that the quota can run at once, at least one."""
    return max(1, int(facts.cores))


def cores_of_gpus(slurm: SlurmFacts, gpus: int) -> int:
    """The cores that a job with so many GPUs of a node asks for: their share of the node's."""
    return max(1, int(slurm.cpus * share_of_node(slurm, gpus)))


def share_of_node(slurm: SlurmFacts, gpus: int) -> float:
    """The share of a node that belongs to the GPUs that are used."""
    return min(1.0, gpus / max(1, slurm.gpus))
