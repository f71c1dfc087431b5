"""The device, its precision, and what it could do at its best."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer_runtime.core.environment.gpus import find_gpu
from trainer_runtime.train.attempt.config import ConfigError, RunConfig

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


@dataclass(frozen=True, slots=True)
class Device:
    """Where a training runs. `peak_flops` is per second, None where nobody knows it."""

    device: torch.device
    precision: str
    peak_flops: float | None
    peak_flops_source: str

    @classmethod
    def choose(cls, config: RunConfig) -> Device:
        """Sets threads, matmul precision and determinism of this process.

        Raises:
            ConfigError: the device is missing, or can't compute in this precision.
        """
        kind = config.compute.device
        if config.compute.deterministic:
            _use_deterministic_algorithms()
        if kind == "cuda":
            _set_up_cuda(config.precision)
        elif kind == "cpu":
            _set_up_cpu(config)
        else:
            raise ConfigError(f"compute.device {kind!r} is neither cpu nor cuda")
        device = (
            torch.device(kind, torch.cuda.current_device())
            if kind == "cuda"
            else (torch.device("cpu"))
        )
        peak_flops, source = _peak_flops(device, config)
        return cls(device, config.precision, peak_flops, source)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """The context of forward passes."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=DTYPES[self.precision])

    @property
    def residual_dtype(self) -> torch.dtype:
        """bf16 on GPUs that compute in it: the sums of blocks are then half the bytes, and those
        of a model that is bound by memory a share of its time. As in Megatron-LM, whose
        `fp32_residual_connection` is off, and torchtitan. Else fp32."""
        is_bf16 = self.is_cuda and self.precision == "bf16"
        return torch.bfloat16 if is_bf16 else torch.float32

    def scaler(self) -> torch.amp.GradScaler:
        """Scales fp16's losses; does nothing in the other precisions."""
        return torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")

    def fp8_loss(self, config: RunConfig) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
        """The output layer with its loss in fp8, where the configuration asks for it.

        Raises:
            ConfigError: the device or this PyTorch can't.
        """
        if not config.compute.fp8_lm_head:
            return None
        if torch.__version__ < "2.5":  # compared as versions
            raise ConfigError("compute.fp8_lm_head needs PyTorch 2.5 or newer")
        from trainer_runtime.train.attempt import fp8_lm_head  # which an older one can't define

        fp8_lm_head.refuse_without_fp8(self.device, config.model.d_model)
        return fp8_lm_head.fp8_linear_cross_entropy

    def put(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """A batch of this machine's memory, contiguous on the device."""
        inputs, targets = (part.contiguous() for part in batch)
        if not self.is_cuda:
            return inputs, targets
        # Pinned by torch's caching allocator, which keeps the memory until the copy has been made.
        inputs, targets = inputs.pin_memory(), targets.pin_memory()
        return inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)


def peak_memory() -> dict[str, float]:
    """The most that tensors have taken so far, as a value of a step; none without a GPU."""
    if not torch.cuda.is_available():
        return {}
    return {"peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30}


def _use_deterministic_algorithms() -> None:
    """Else sums are added in the order in which a GPU's blocks happen to end: in the backward pass
    of fused attention, and of embeddings where they are compiled.

    Not `warn_only`: attention's backward pass then stays as it was.
    """
    # cuBLAS reads it at its first use (CUDA's documentation, "Results reproducibility").
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # It costs a write of each new tensor, and shows defects of programs only.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _set_up_cuda(precision: str) -> None:
    if not torch.cuda.is_available():
        raise ConfigError("compute.device is cuda, but torch finds no CUDA device here")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if precision == "bf16" and not torch.cuda.is_bf16_supported():
        raise ConfigError("precision bf16 is not supported by this GPU; use fp16 or fp32")
    torch.set_float32_matmul_precision("high")


def _set_up_cpu(config: RunConfig) -> None:
    if config.precision == "fp16":
        raise ConfigError("precision fp16 is for CUDA only; use bf16 or fp32 on a CPU")
    if config.compute.threads:
        torch.set_num_threads(config.compute.threads)
    # Not `medium`: it makes short fp32 attention, the fast one here, three times as slow.
    torch.set_float32_matmul_precision("highest")
    _keep_freed_memory()
    # Numbers too small for normal form cost a CPU a hundred times a normal operation.
    torch.set_flush_denormal(True)


def _keep_freed_memory() -> None:
    """Lets the C library keep what a step frees for the next one, where that library is glibc.

    Otherwise every step of a small model takes thousands of page faults, a tenth of its time.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def _peak_flops(device: torch.device, config: RunConfig) -> tuple[float | None, str]:
    if config.derived.peak_flops:
        return config.derived.peak_flops, "plan"
    if device.type == "cpu":
        # A sample on a busy machine is not an upper bound: a step may be faster than any sample.
        return None, "unknown: a CPU's peak can't be sampled"
    name = torch.cuda.get_device_name(device)
    gpu = find_gpu(name)
    if gpu is None:
        return None, f"unknown: no peak is known for {name}"
    return gpu.peak_flops, f"data sheet: {gpu.name}"
