"""The hosts and corpora that plans are made for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainmaster.plan import (
    CorpusFacts,
    GpuFacts,
    HostFacts,
    TorchFacts,
)

Corpora = Callable[..., CorpusFacts]


@pytest.fixture
def rows(one_source: Corpora) -> CorpusFacts:
    """A thousand examples."""
    return one_source(examples=1000)


@pytest.fixture
def gpu_host(cpu_host: HostFacts) -> HostFacts:
    gpu = GpuFacts(index=0, name="NVIDIA H200", memory_gib=139.8, memory_free_gib=139.8)
    torch = TorchFacts(version="2.11.0+cu130", cuda="13.0", cuda_available=True, bf16_gpu=True)
    return cpu_host.model_copy(update={"gpus": (gpu,), "torch": torch, "disk_free_gib": 900.0})
