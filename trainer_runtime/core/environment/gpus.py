"""GPUs by name: what each could do at its best, and the memory that a process gets of it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU model. `peak_flops` is dense, in bf16, or fp16 where bf16 is not in hardware.

    `memory_gib` is what a process can allocate, `memory_bytes_per_s` how fast it is read. `fp8`:
    whether it has matrix products in fp8.
    """

    name: str
    peak_flops: float
    memory_gib: float
    memory_bytes_per_s: float
    bf16: bool = True
    fp8: bool = False


# Vendors' data sheets, without sparsity.
GPUS: tuple[Gpu, ...] = (
    Gpu("gb200", 2500e12, 184, 8.0e12, fp8=True),
    Gpu("b200", 2250e12, 178, 8.0e12, fp8=True),
    Gpu("h200", 989e12, 139.8, 4.8e12, fp8=True),
    Gpu("h100", 989e12, 79.1, 3.35e12, fp8=True),
    # HBM2e, at 500 W: of Meta's Grand Teton.
    Gpu("h100-96", 989e12, 93.1, 2.4e12, fp8=True),
    Gpu("h100-pcie", 756e12, 79.1, 2.0e12, fp8=True),
    Gpu("h100-nvl", 835e12, 93.1, 3.9e12, fp8=True),
    Gpu("a100-40", 312e12, 39.4, 1.55e12),
    Gpu("a100", 312e12, 79.2, 2.04e12),
    Gpu("pro6000", 503e12, 94.9, 1.79e12, fp8=True),
    Gpu("6000ada", 364e12, 47.4, 0.96e12, fp8=True),
    Gpu("a6000", 154e12, 47.5, 0.77e12),
    Gpu("l40s", 362e12, 44.4, 0.86e12, fp8=True),
    Gpu("l40", 181e12, 44.4, 0.86e12, fp8=True),
    Gpu("a40", 150e12, 44.4, 0.70e12),
    Gpu("a30", 165e12, 23.5, 0.93e12),
    Gpu("l4", 121e12, 22.0, 0.30e12, fp8=True),
    Gpu("5090", 209e12, 31.3, 1.79e12, fp8=True),
    Gpu("4090", 165e12, 23.6, 1.01e12, fp8=True),
    Gpu("3090", 71e12, 23.6, 0.94e12),
    Gpu("a10g", 70e12, 22.0, 0.60e12),
    Gpu("a10", 125e12, 22.0, 0.60e12),
    Gpu("v100", 125e12, 31.7, 0.90e12, bf16=False),
    Gpu("v100-16", 125e12, 15.7, 0.90e12, bf16=False),
    Gpu("t4", 65e12, 14.7, 0.32e12, bf16=False),
    Gpu("p100", 18.7e12, 15.9, 0.73e12, bf16=False),
)
# Of a GPU with fp8: Ada, then Hopper. Each side of a matrix in it is a multiple of so many.
FIRST_FP8_CAPABILITY = (8, 9)
FP8_MULTIPLE = 16
# Of a GPU in two sizes: below so many GiB it is the smaller one.
_A100_SMALL_GIB = 48
_H100_LARGE_GIB = 88
_V100_SMALL_GIB = 24
# What several words name: in the name without separators.
_IN_SEVERAL_WORDS = (
    (re.compile(r"h100.*pcie"), "h100-pcie"),
    (re.compile(r"h100.*nvl"), "h100-nvl"),
    (re.compile(r"pro6000"), "pro6000"),
    (re.compile(r"6000ada"), "6000ada"),
)
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 60


def find_gpu(name: str, memory_gib: float | None = None) -> Gpu | None:
    """The table's entry for a name such as `h100` or `NVIDIA H100 80GB HBM3`; None if unknown.

    `memory_gib` distinguishes the sizes of the A100, the H100 and the V100 where the name does not.
    """
    words = _SEPARATORS.sub(" ", name.lower()).split()
    compact = "".join(words)
    if any(re.match("a100(?!0)", word) for word in words):  # the RTX A1000 is another one
        small = "40g" in compact or compact.endswith("a10040")
        small = small or (memory_gib is not None and memory_gib < _A100_SMALL_GIB)
        return _by_name("a100-40" if small else "a100")
    if any(word.startswith("v100") for word in words):
        small = "16g" in compact or compact.endswith("v10016")
        small = small or (memory_gib is not None and memory_gib < _V100_SMALL_GIB)
        return _by_name("v100-16" if small else "v100")
    for pattern, model in _IN_SEVERAL_WORDS:
        if pattern.search(compact):
            return _by_name(model)
    if "h100" in words and (
        "96" in words or "96gb" in words or (memory_gib or 0) > _H100_LARGE_GIB
    ):
        return _by_name("h100-96")
    for gpu in GPUS:
        # `l4` must not be met by `l40s`, nor `t4` by `rtx4090`.
        if any(re.fullmatch(rf"(?:rtx)?{gpu.name}(?:sxm\d?)?(?:\d+gb?)?", word) for word in words):
            return gpu
    return None


def gpu_label(reported: str) -> str:
    """A GPU's name in a closed alphabet, whatever a machine or a provider reports: `NVIDIA H100` by
    the table, or the reported name as a slug (`nvidia-rtx-a4000`). The label of a label is itself,
    and `find_gpu` finds the same by either.
    """
    gpu_model = find_gpu(reported)
    return f"NVIDIA {gpu_model.name.upper()}" if gpu_model else slug(reported)[:_LONGEST_SLUG]


def slug(text: str) -> str:
    """A name in lower case, with hyphens for all characters but letters and digits."""
    return _SEPARATORS.sub("-", text.lower()).strip("-")


def gpu_names() -> str:
    """The known names, for errors."""
    return ", ".join(gpu.name for gpu in GPUS)


def _by_name(name: str) -> Gpu | None:
    return next((gpu for gpu in GPUS if gpu.name == name), None)
