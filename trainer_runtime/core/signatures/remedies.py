"""What to do about a failure: patches of the resolved config, and advice where none can help.

Patches keep the training's meaning: the batch's tokens, the sequence length and the data stay. A
rung names the frameworks whose config.json has its fields; a rung whose fields are missing, or
whose rule changes nothing, is left out. Another framework's ladder is more rungs, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.finding import Patch

Config = Mapping[str, Any]
Changes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rung:
    """One patch of a code. `rule` gives the new values by dotted name, {} where it can't help."""

    id: str
    codes: frozenset[str]
    frameworks: frozenset[str]
    why: str
    rule: Callable[[Config], Changes]


def patches(code: str, config: Config | None) -> tuple[Patch, ...]:
    """The rungs for `code` that `config` (resolved) has, the gentlest first."""
    if config is None:
        return ()
    found = []
    for rung in LADDER:
        if code not in rung.codes or config.get("framework") not in rung.frameworks:
            continue
        changes = rung.rule(config)
        if changes:
            expected = {path: value_at(config, path) for path in changes}
            found.append(Patch(rung.id, changes, expected, rung.why))
    return tuple(found)


def advice(code: str) -> tuple[str, ...]:
    """What a person can do, in words; the most likely first."""
    return _ADVICE.get(code, ())


def value_at(config: Config, path: str) -> Any:
    """The value at a dotted name, None where there is none."""
    node: Any = config
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def _split_micro_batch(config: Config) -> Changes:
    """Halve it and double the accumulation; an odd one is parted by its smallest divisor."""
    micro = value_at(config, "batch.micro_batch")
    accumulation = value_at(config, "batch.accumulation")
    if type(micro) is not int or type(accumulation) is not int or micro < 2 or accumulation < 1:
        return {}
    part = next(divisor for divisor in range(2, micro + 1) if micro % divisor == 0)
    return {"batch.micro_batch": micro // part, "batch.accumulation": accumulation * part}


def _to_bf16(config: Config) -> Changes:
    return {"precision": "bf16"} if config.get("precision") == "fp16" else {}


def _to_fp32(config: Config) -> Changes:
    return {"precision": "fp32"} if config.get("precision") == "fp16" else {}


def _half_the_rate(config: Config) -> Changes:
    rate = value_at(config, "optimizer.lr")
    return {"optimizer.lr": rate / 2} if isinstance(rate, (int, float)) and rate > 0 else {}


def _clip(config: Config) -> Changes:
    clip = value_at(config, "optimizer.grad_clip")
    return {"optimizer.grad_clip": 1.0} if clip is not None and not 0 < clip <= 1.0 else {}


def _keep_fewer(config: Config) -> Changes:
    changes: Changes = {}
    kept = value_at(config, "checkpoint.keep_latest")
    if type(kept) is int and kept > 1:
        changes["checkpoint.keep_latest"] = 1
    if value_at(config, "checkpoint.keep_every_steps") is not None:
        changes["checkpoint.keep_every_steps"] = None
    return changes


def _no_compile(config: Config) -> Changes:
    return {"compute.compile": False} if value_at(config, "compute.compile") is True else {}


def _rung(id: str, codes: str, why: str, rule: Callable[[Config], Changes]) -> Rung:
    return Rung(id, frozenset(codes.split()), frozenset({"nanogpt"}), why, rule)


LADDER: tuple[Rung, ...] = (
    _rung(
        "halve_micro_batch",
        "cuda_oom",
        "Fewer sequences at a time need less memory; accumulation keeps the batch as it is.",
        _split_micro_batch,
    ),
    _rung(
        "bf16",
        "nan_loss nan_grad fp16_overflow fp16_scale_floor",
        "bf16 has the range of fp32 and needs no loss scale; the GPU has to be Ampere or newer.",
        _to_bf16,
    ),
    _rung(
        "fp32",
        "fp16_scale_floor nan_grad",
        "fp32 can't overflow as fp16 does; it is slower and needs more memory.",
        _to_fp32,
    ),
    _rung(
        "clip_gradients",
        "nan_loss nan_grad loss_spike",
        "Clipping at 1.0 keeps one bad batch from moving the weights far.",
        _clip,
    ),
    _rung(
        "halve_lr",
        "nan_loss nan_grad fp16_scale_floor loss_spike",
        "A rate that is too high is the most common reason.",
        _half_the_rate,
    ),
    _rung(
        "keep_fewer_checkpoints",
        "disk_full disk_quota disk_filling",
        "Only the newest verified checkpoint and the best stay.",
        _keep_fewer,
    ),
    _rung(
        "no_compile",
        "triton_missing compiler_missing",
        "Without torch.compile no compiler is needed; training is slower.",
        _no_compile,
    ),
)

_ADVICE: dict[str, tuple[str, ...]] = {
    "cuda_oom": (
        "Look who holds the GPU's memory (nvidia-smi): another process may.",
        "Then take a smaller micro-batch with more accumulation, then activation checkpointing, "
        "then the next ZeRO stage.",
    ),
    "host_oom": (
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
    "preempted_sigterm": ("Resume; on machines that are taken away, save more often.",),
    "session_hangup": ("Start it where no terminal can end it (setsid, tmux, a scheduler).",),
    "interrupted": ("Resume if that was not meant.",),
    "time_limit": ("Resume with a new time limit; a checkpoint before the limit loses least.",),
    "loss_spike": ("Watch whether it comes back; else rewind and leave the data out.",),
}
