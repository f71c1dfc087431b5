"""The device, its precision, and what it could do at its best."""

from __future__ import annotations

import contextlib
import ctypes
import os

import torch

from trainer_runtime.core.environment.gpus import find_gpu
from trainer_runtime.core.records import dataclass
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
        """Sets threads and matmul precision of this process.

        Raises:
            ConfigError: the device is missing, or can't compute in this precision.
        """
        kind = config.compute.device
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

    def scaler(self) -> torch.amp.GradScaler:
        """Scales fp16's losses; does nothing in the other precisions."""
        return torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")


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
