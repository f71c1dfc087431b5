"""What a person can do about a failure where no patch can, in words; the most likely first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_NOTHING: Mapping[str, float | int] = MappingProxyType({})
_FOR_NCCL = (
    "Leave memory for NCCL, which takes it beside PyTorch's own: a smaller micro-batch with more "
    "accumulation, or smaller buffers (NCCL_BUFFSIZE)."
)


def advice(code: str, slots: Mapping[str, float | int] = _NOTHING) -> tuple[str, ...]:
    """The sentences for a code of the signatures; none where there is nothing to say.

    `slots`: the finding's own; some put another sentence first.
    """
    if "nccl_gib" in slots and "asked_gib" not in slots:
        return (_FOR_NCCL, *ADVICE.get(code, ()))
    return ADVICE.get(code, ())


ADVICE: dict[str, tuple[str, ...]] = {
    "cuda_oom": (
        "Look who holds the GPU's memory (nvidia-smi): another process may.",
        "Then take a smaller micro-batch with more accumulation, then activation checkpointing, "
        "then the next ZeRO stage; with an adapter a quantised base instead.",
    ),
    "host_oom": (
        "Look who holds the machine's memory (`ps aux --sort=-rss`): another process may.",
        "Use fewer DataLoader workers, or load data lazily (memory-mapped).",
        "Ask the scheduler or container for more memory.",
    ),
    "shm_too_small": (
        "Enlarge /dev/shm (docker: --shm-size=16g, or --ipc=host).",
        "Until then, use num_workers=0.",
    ),
    "dataloader_crash": ("Run with num_workers=0 to see the worker's own error.",),
    "hang_data": ("Look at the storage that the data is read from; raise the time-out if slow.",),
    "disk_full": ("Free space on the disk, or keep fewer checkpoints.",),
    "disk_filling": ("Free space on the disk before it is full.",),
    "disk_quota": ("Free space within the quota, or have it raised.",),
    "nan_loss": ("Resume from a checkpoint before the onset, leaving out the data in between.",),
    "nan_grad": ("Resume from a checkpoint before the onset; look for overflow in fp16.",),
    "fp16_overflow": ("Watch it; bf16 does not have the problem.",),
    "fp16_scale_floor": ("Resume from a checkpoint before the overflows began, with bf16.",),
    "nccl_timeout": (
        "Compare the ranks' stacks: the rank that differs is the one to look at.",
        "Raise the time-out only where a slow step (evaluation, saving) explains it.",
    ),
    "nccl_peer_lost": ("Read the log of the rank that went away, and its machine's kernel log.",),
    "nccl_system_error": (
        "Set NCCL_DEBUG=INFO and start again: it names the failing call.",
        "Check NCCL_SOCKET_IFNAME and that all machines reach each other.",
    ),
    "rendezvous_port_in_use": (
        "End the process that holds the port, or take another (--master-port, --rdzv-endpoint).",
    ),
    "ddp_unused_params": ("Use every parameter in the loss, or set find_unused_parameters=True.",),
    "cuda_illegal_memory": (
        "Start with CUDA_LAUNCH_BLOCKING=1 to see the kernel that fails.",
        "If other cards run the same program well, have this one checked.",
    ),
    "index_out_of_range": (
        "Compare the largest token id in the data with the model's vocabulary.",
    ),
    "cuda_driver_too_old": ("Update the driver, or install a build for an older CUDA.",),
    "cuda_arch_mismatch": ("Install a build that lists this GPU's architecture.",),
    "flash_attn_abi_mismatch": (
        "Install flash-attn again, for the PyTorch and CUDA that are installed.",
    ),
    "bitsandbytes_cuda_setup": (
        "Install a bitsandbytes with CUDA support; `python -m bitsandbytes` says what it wants.",
    ),
    "triton_missing": ("Install the Triton that belongs to the installed PyTorch.",),
    "compiler_missing": (
        "Install gcc, Python's headers and the CUDA toolkit of PyTorch's version.",
    ),
    "gpu_hw_ecc": ("Reset the GPU or restart the machine; replace the card if it comes again.",),
    "gpu_fell_off_bus": ("Restart the machine; check power, cooling and seating of the card.",),
    "gpu_mmu_fault": ("Look for an illegal memory access in the program first.",),
    "checkpoint_corrupt": ("Resume from an older checkpoint that verifies.",),
    "checkpoint_shape_mismatch": ("Give the model the shape that the checkpoint was saved with.",),
    "hf_gated_repo": (
        "Accept the repository's terms, give the run a token (HF_TOKEN), check the name.",
    ),
    "hf_network": ("Download beforehand and set HF_HUB_OFFLINE=1, or let the host reach the hub.",),
    "dataset_columns": (
        "Give rows the method's columns: prompt and completion or messages for sft, prompt, chosen "
        "and rejected for dpo and reward, prompt, completion and label for kto, prompt for grpo.",
    ),
    "lora_targets_missing": (
        "Set adapter.targets to auto, or to names of linear modules that the model has.",
    ),
    "framework_settings": (
        "Set the batch so that it divides by ranks, micro-batch and generations; take bf16 only "
        "where the device can.",
    ),
    "tracker_no_credentials": (
        "List the tracker's variable under `secrets` (WANDB_API_KEY, NEPTUNE_API_TOKEN, "
        "COMET_API_KEY) and set its value where runs are started.",
        "Or do without the service: `mode: offline` under the tracker's name, or "
        "`--set tracking=null`.",
    ),
    "package_missing": (
        "Install it there, or set `environment: auto`, which builds an environment with it.",
    ),
    "package_mismatch": (
        "Install versions that go together (the plan's requirements.txt names such), or set "
        "`environment: auto`.",
        "A torchvision that doesn't go with the PyTorch can be uninstalled: training text needs "
        "none.",
    ),
    "preempted_sigterm": ("Resume; on machines that are taken away, save more often.",),
    "session_hangup": ("Start it where no terminal can end it (setsid, tmux, a scheduler).",),
    "interrupted": ("Resume if that was not meant.",),
    "time_limit": ("Resume with a new time limit; a checkpoint before the limit loses least.",),
    "unknown_error": (
        "Read the log above this line: the frame that is shown names the place in the program.",
        "Resume once the cause is mended; the same error would end it again.",
    ),
    "loss_spike": ("Watch whether it comes back; else rewind and leave the data out.",),
}
