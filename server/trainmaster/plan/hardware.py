"""GPUs by name, the precision that hardware can do, and which GPU a model of some size wants."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainmaster.plan.facts import HostFacts, TorchFacts


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU model. `peak_flops` is dense, in bf16, or fp16 where bf16 is not in hardware.

    `memory_gib` is what a process can allocate.
    """

    name: str
    peak_flops: float
    memory_gib: float
    bf16: bool = True


# Vendors' data sheets, without sparsity.
GPUS: tuple[Gpu, ...] = (
    Gpu("gb200", 2500e12, 184),
    Gpu("b200", 2250e12, 178),
    Gpu("h200", 989e12, 139.8),
    Gpu("h100", 989e12, 79.1),
    Gpu("h100-pcie", 756e12, 79.1),
    Gpu("a100-40", 312e12, 39.4),
    Gpu("a100", 312e12, 79.2),
    Gpu("l40s", 362e12, 44.4),
    Gpu("l40", 181e12, 44.4),
    Gpu("a40", 150e12, 44.4),
    Gpu("l4", 121e12, 22.0),
    Gpu("4090", 165e12, 23.6),
    Gpu("3090", 71e12, 23.6),
    Gpu("a10g", 70e12, 22.0),
    Gpu("a10", 125e12, 22.0),
    Gpu("v100", 125e12, 31.7, bf16=False),
    Gpu("t4", 65e12, 14.7, bf16=False),
    Gpu("p100", 18.7e12, 15.9, bf16=False),
)
_A100_SMALL_GIB = 48
_SEPARATORS = re.compile(r"[^a-z0-9]+")
# About what two cores reach; only to tell trainings that need no GPU from those that do.
_MODEST_CPU_FLOPS = 1e11


def find_gpu(name: str, memory_gib: float | None = None) -> Gpu | None:
    """The table's entry for a name such as `h100` or `NVIDIA H100 80GB HBM3`; None if unknown.

    `memory_gib` tells the two sizes of the A100 apart where the name does not.
    """
    words = _SEPARATORS.sub(" ", name.lower()).split()
    compact = "".join(words)
    if any(word.startswith("a100") for word in words):
        small = "40g" in compact or compact.endswith("a10040")
        small = small or (memory_gib is not None and memory_gib < _A100_SMALL_GIB)
        return _by_name("a100-40" if small else "a100")
    if "h100" in words and "pcie" in words:
        return _by_name("h100-pcie")
    for gpu in GPUS:
        # `l4` must not be met by `l40s`, nor `t4` by `rtx4090`.
        if any(re.fullmatch(rf"(?:rtx)?{gpu.name}(?:\d+gb?)?", word) for word in words):
            return gpu
    return None


def gpu_names() -> str:
    """The known names, for errors."""
    return ", ".join(gpu.name for gpu in GPUS)


def best_precision(
    device: str, torch: TorchFacts | None, gpu: Gpu | None, on_host: bool
) -> tuple[str, str]:
    """The precision that `auto` becomes, and why.

    bf16 where it is in hardware: GPUs from Ampere on, CPUs with AVX512_BF16 or AMX. `on_host`
    says whether the device is the host's own, so that PyTorch's word on it counts.
    """
    if device == "cpu":
        if torch is not None and torch.bf16_cpu:
            return "bf16", "The CPU multiplies bf16 in hardware, measured at 2.75 times fp32."
        return "fp32", "The CPU has no bf16 instructions (AVX512_BF16 or AMX)."
    able = gpu.bf16 if gpu is not None else True
    if on_host and torch is not None and gpu is None:
        able = torch.bf16_gpu
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


def _by_name(name: str) -> Gpu | None:
    return next((gpu for gpu in GPUS if gpu.name == name), None)
