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
# Lightning and PyTorch's first FSDP know GPUs alone. With this in each rank they take the CPU for
# one; what they move to the CPU is copied, as from a GPU, since they free the memory it comes from.
CPU_AS_GPU_IN_LIGHTNING = """\
import os
if "RANK" in os.environ:
    import torch
    from lightning.fabric import connector
    from torch.distributed.fsdp import FullyShardedDataParallel, api

    of_connector = connector._Connector._check_strategy_and_fallback
    of_model, of_state = FullyShardedDataParallel.__init__, api.FullStateDictConfig.__init__

    def check(self):
        flag, self._accelerator_flag = self._accelerator_flag, "gpu"
        of_connector(self)
        self._accelerator_flag = flag

    def on_cpu(self, *given, **named):
        of_model(self, *given, **{**named, "device_id": torch.device("cpu")})

    def in_place(self, offload_to_cpu=False, rank0_only=False):
        of_state(self, offload_to_cpu=False, rank0_only=rank0_only)

    connector._Connector._check_strategy_and_fallback = check
    FullyShardedDataParallel.__init__ = on_cpu
    api.FullStateDictConfig.__init__ = in_place
    torch.Tensor.cpu = lambda tensor, *_, **__: tensor.clone()
    torch.cpu.device_count = lambda: int(os.environ["LOCAL_WORLD_SIZE"])
"""
# Between ranks on one CPU, DeepSpeed goes by an operator of its own that each machine compiles
# first, for more than a minute. Without it they go by gloo, as PyTorch's own ranks do. One of its
# optimizers, which none of them takes, is compiled: each would load a compiler, for two seconds.
BY_GLOO = """\
import os
if "RANK" in os.environ:
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    import deepspeed
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
"""
