"""Code that each rank runs first, so that strategies for GPUs share a model out among CPUs."""

from __future__ import annotations

# Accelerate makes no FSDP of ranks on a CPU, but trains them by DDP without a word. With this in
# each rank it takes the CPU for a kind of GPU.
CPU_AS_GPU = """\
import os
if "RANK" in os.environ:
    import torch
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    def set_device(self):
        self.device = self.device or torch.device("cpu")

    PartialState._prepare_backend = lambda self, *_: ("gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = set_device
"""
# Between ranks on one CPU, DeepSpeed goes by an operator of its own that each machine compiles
# first, for more than a minute. Without it they go by gloo, as PyTorch's own ranks do.
BY_GLOO = """\
import os
if "RANK" in os.environ:
    import deepspeed
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
"""
