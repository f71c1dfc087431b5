"""What a code means, in our own words. Slots are checked numbers; no word comes from the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EXPLANATIONS: dict[str, str] = {
    "cuda_oom": "The GPU's memory is exhausted.",
    "host_oom": "A process was killed, or an allocation refused, for want of host memory.",
    "shm_too_small": "/dev/shm is too small for what the processes exchange through it.",
    "dataloader_crash": "A DataLoader worker died; the main process only reports it.",
    "hang_data": "No batch came: the DataLoader waited for its workers until its time-out.",
    "disk_full": "There is no space left on the disk that was written to.",
    "disk_filling": "The disk has less free space than a download wants.",
    "disk_quota": "The disk quota of the user or group is used up.",
    "nan_loss": "The loss is no longer a finite number.",
    "nan_grad": "The gradients are no longer finite, though the loss that is shown is.",
    "fp16_overflow": "Gradients overflow in fp16 and steps are skipped, more than while the loss "
    "scale settles.",
    "fp16_scale_floor": "The fp16 loss scale is at its minimum and gradients still overflow.",
    "loss_spike": "The loss jumped; the framework's own check said so.",
    "nccl_timeout": "A collective operation did not finish in time: some rank did not take part, "
    "and nothing in the log says why.",
    "nccl_peer_lost": "The connection to another rank was lost: its process or machine went away.",
    "nccl_system_error": "NCCL could not use the network or the device.",
    "rendezvous_port_in_use": "The port on which the processes meet is taken, often by an earlier "
    "run that still lives.",
    "ddp_unused_params": "DDP waits for gradients of parameters that took no part in the loss.",
    "cuda_illegal_memory": "A GPU kernel read or wrote memory that is not its own.",
    "index_out_of_range": "An index lies outside its table: mostly a token id that is not smaller "
    "than the vocabulary, or a label beyond the number of classes.",
    "cuda_driver_too_old": "The NVIDIA driver is older than the CUDA runtime needs.",
    "cuda_arch_mismatch": "The installed build has no kernels for this GPU's architecture.",
    "flash_attn_abi_mismatch": "flash-attn was built for another version of PyTorch or CUDA.",
    "bitsandbytes_cuda_setup": "bitsandbytes finds no CUDA library that fits.",
    "triton_missing": "torch.compile needs Triton, which is missing or of another version.",
    "compiler_missing": "Building an extension or kernel failed: the compiler, headers or "
    "libcuda are missing or of another version.",
    "gpu_hw_ecc": "The GPU reported a memory error that it could not correct: a hardware fault.",
    "gpu_fell_off_bus": "The GPU is lost to the machine until that is restarted.",
    "gpu_mmu_fault": "The GPU's memory unit refused an access: mostly the program's fault, not "
    "the card's.",
    "checkpoint_corrupt": "A checkpoint can't be read: it is cut off or damaged.",
    "checkpoint_shape_mismatch": "A checkpoint belongs to a model or optimizer of another shape.",
    "hf_gated_repo": "The hub refuses a gated or private repository, or does not know it.",
    "hf_network": "The Hugging Face hub can't be reached.",
    "dataset_columns": "The data lacks columns that the method reads, or its files differ in them.",
    "lora_targets_missing": "The adapter names modules that this model does not have.",
    "framework_settings": "The framework refuses settings that don't go together.",
    "tracker_no_credentials": "The tracker (wandb, neptune, comet, clearml) refuses to begin: it "
    "was given no key, or one that it does not take.",
    "package_missing": "A package that the framework needs is not installed.",
    "package_mismatch": "Two installed packages don't go together: one wants another version.",
    "preempted_sigterm": "The training was ended by SIGTERM from outside: preemption, a "
    "scheduler, or somebody's cancel.",
    "session_hangup": "The terminal or session that the training ran in went away (SIGHUP).",
    "interrupted": "The training was interrupted (SIGINT).",
    "time_limit": "The time that the training was given is over.",
    "unknown_error": "It ended with an error that has no code of its own; the last line of the "
    "evidence tells it.",
    "benign_tokenizers_fork": "tokenizers only says that it stops using threads after a fork; "
    "nothing is wrong.",
}

# (code, the slots it needs, the sentence); each that has its slots is added.
_DETAILS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("cuda_oom", ("asked_gib",), "{asked} more were asked for."),
    ("cuda_oom", ("nccl_gib",), "NCCL asked for {nccl} more for a buffer of its own."),
    ("cuda_oom", ("total_gib",), "The GPU has {total}."),
    (
        "cuda_oom",
        ("held_gib",),
        "Another process holds {held} of it: that is the first to look at.",
    ),
    ("host_oom", ("asked_gib",), "{asked} more were asked for."),
    ("fp16_overflow", ("loss_scale",), "The loss scale is down to {loss_scale:g}."),
    ("fp16_scale_floor", ("loss_scale",), "It is {loss_scale:g}."),
    ("nccl_timeout", ("timeout_s",), "The time-out was {timeout_s:g} s."),
    ("rendezvous_port_in_use", ("port",), "It is port {port:d}."),
    ("gpu_hw_ecc", ("xid",), "The driver calls it Xid {xid:d}."),
    ("gpu_fell_off_bus", ("xid",), "The driver calls it Xid {xid:d}."),
    ("gpu_mmu_fault", ("xid",), "The driver calls it Xid {xid:d}."),
    ("cuda_arch_mismatch", ("sm",), "The architecture is sm_{sm:d}."),
)
_RANK = "Rank {rank:d} said so first."
_OF_A_RANK = frozenset(
    {"benign_tokenizers_fork", "time_limit", "preempted_sigterm", "interrupted", "session_hangup"}
)
_GUESSED = "Nothing in the log says so; it follows from how the process ended."
_WENT_ON = "The training went on afterwards."
_PASSED = "It passed by itself."
_LED_TO = "It led to {codes}."


def explain(
    code: str,
    slots: Mapping[str, float | int],
    *,
    led_to: Sequence[str] = (),
    guessed: bool = False,
    went_on: bool = False,
    passed: bool = False,
) -> str:
    """The code's sentences, as far as their slots are known.

    `led_to` holds codes of this catalogue; `guessed`, `went_on` and `passed` add what they say.
    """
    sentences = [EXPLANATIONS[code]]
    sizes = {name[:-4]: _size(value) for name, value in slots.items() if name.endswith("_gib")}
    for of, needed, sentence in _DETAILS:
        if of == code and all(slot in slots for slot in needed):
            sentences.append(sentence.format(**slots, **sizes))
    if "rank" in slots and code not in _OF_A_RANK:
        sentences.append(_RANK.format(**slots))
    if guessed:
        sentences.append(_GUESSED)
    if went_on:
        sentences.append(_WENT_ON)
    if passed:
        sentences.append(_PASSED)
    symptoms = [one for one in led_to if one in EXPLANATIONS]
    if symptoms:
        sentences.append(_LED_TO.format(codes=", ".join(symptoms)))
    return " ".join(sentences)


def _size(gib: float) -> str:
    if gib >= 1.0:
        return f"{round(gib, 3):g} GiB"
    return f"{1024 * gib:.3g} MiB" if gib >= 1 / 1024 else f"{gib * 2**20:.3g} KiB"
