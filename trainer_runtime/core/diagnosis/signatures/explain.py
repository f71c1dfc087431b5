"""The explanation of each code. Slots are validated numbers and names of closed
lists; no other text comes from the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainer_runtime.core.diagnosis.kinds import KINDS
from trainer_runtime.core.diagnosis.phase_text import WHILE
from trainer_runtime.core.diagnosis.traceback_text import Phase
from trainer_runtime.core.protocol.figures import gib_text
from trainer_runtime.core.protocol.finding import Slot

EXPLANATIONS: dict[str, str] = {
    "cuda_oom": "The GPU's memory is exhausted.",
    "host_oom": "The host ran out of memory (RAM), or a container, job or node reached its limit "
    "of it: a process was killed or an allocation failed.",
    "shm_too_small": "/dev/shm is too small for the data that the processes exchange through it.",
    "dataloader_crash": "A DataLoader worker died; the main process only reports it.",
    "hang_data": "No batch arrived: the DataLoader timed out waiting for its workers.",
    "disk_full": "No space is left on the disk.",
    "io_error": "A disk or network file system failed to read or write.",
    "too_many_open_files": "The process has as many files open as it may.",
    "disk_filling": "The disk has less free space than a download needs.",
    "disk_quota": "The disk quota of the user or group is exceeded.",
    "nan_loss": "The loss is NaN or infinite.",
    "nan_grad": "The gradients are NaN or infinite.",
    "nan_eval": "The evaluation loss is NaN or infinite.",
    "kl_negative": "The KL divergence is below 0, which no divergence is: the answers are not "
    "sampled from the policy as it is trained.",
    "fp16_overflow": "Gradients overflow in fp16 and steps are skipped, more often than is normal "
    "while the loss scale adjusts.",
    "fp16_scale_floor": "The fp16 loss scale is at its minimum and gradients still overflow.",
    "loss_spike": "The loss jumped, according to the framework's own check.",
    "nccl_timeout": "A collective operation timed out: a rank did not join it, and the log does "
    "not say why.",
    "nccl_peer_lost": "The connection to another rank was lost: its process or machine died.",
    "node_lost": "A machine of the training was lost: it was restarted or switched off, or its "
    "network is down.",
    "nccl_system_error": "NCCL could not use the network or the device.",
    "rendezvous_port_in_use": "The rendezvous port is in use, often by an earlier run that is "
    "still alive.",
    "ddp_unused_params": "DDP waits for gradients of parameters that were not used in the loss.",
    "cuda_illegal_memory": "A GPU kernel accessed memory illegally.",
    "index_out_of_range": "An index is out of range: usually a token id beyond the vocabulary, or "
    "a label beyond the number of classes.",
    "cuda_driver_too_old": "The NVIDIA driver is too old for the CUDA runtime.",
    "cuda_arch_mismatch": "The installed build has no kernels for this GPU's architecture.",
    "flash_attn_abi_mismatch": "flash-attn was built for another version of PyTorch or CUDA.",
    "bitsandbytes_cuda_setup": "bitsandbytes finds no compatible CUDA library.",
    "triton_missing": "torch.compile needs Triton, which is missing or has the wrong version.",
    "compiler_missing": "Building an extension or kernel failed: the compiler, headers or "
    "libcuda are missing or have the wrong version.",
    "nondeterministic_operation": "compute.deterministic refused an operation that has no "
    "deterministic form in PyTorch.",
    "gpu_hw_ecc": "The GPU reported an uncorrectable memory error: a hardware fault.",
    "gpu_fell_off_bus": "The GPU is unavailable until the machine is restarted.",
    "gpu_mmu_fault": "The GPU's memory unit rejected an access: usually the program's fault, not "
    "the card's.",
    "checkpoint_corrupt": "A checkpoint can't be read: it is truncated or damaged.",
    "checkpoint_shape_mismatch": "A checkpoint belongs to a model or optimizer of another shape.",
    "hf_gated_repo": "The hub denies access to a gated or private repository, or does not know it.",
    "hf_network": "The Hugging Face hub can't be reached.",
    "dataset_columns": "The data lacks columns that the method needs, or its files differ in them.",
    "lora_targets_missing": "The adapter names modules that this model does not have.",
    "framework_settings": "The framework rejects an incompatible combination of settings.",
    "tracker_no_credentials": "The tracker (wandb, neptune, comet, clearml) did not start: its key "
    "is missing or invalid.",
    "arguments_refused": "The program does not take the arguments that it was started with.",
    "chat_template_missing": "The tokenizer has no chat template, by which conversations become "
    "text.",
    "pad_token_missing": "The tokenizer has no token that fills batches of unequal length.",
    "data_malformed": "A file of data is not the JSON that it should be.",
    "package_missing": "A package that the training needs is not installed.",
    "package_mismatch": "Two installed packages are incompatible: one needs another version.",
    "preempted_sigterm": "The training was ended by SIGTERM from outside: preemption, a "
    "scheduler, or a manual cancel.",
    "job_cancelled": "A person cancelled the job (scancel, qdel, bkill); the log reports no other "
    "failure.",
    "sigkill": "The process was ended by signal 9 (SIGKILL): a person (`kill -9`), a scheduler, or "
    "the kernel's out-of-memory killer sent it. It can't be caught, so nothing was saved at the "
    "end.",
    "session_hangup": "The terminal or session of the training was closed (SIGHUP).",
    "interrupted": "The training was interrupted (SIGINT).",
    "time_limit": "The training reached its time limit.",
    "vanished": "The log ends before the training's last step, without an error or a closing line.",
    "unknown_error": "The training ended with an error that has no code; the last line of the "
    "evidence is its message.",
    "benign_tokenizers_fork": "tokenizers reports that it stops using threads after a fork; "
    "nothing is wrong.",
    **{kind.code: kind.says for kind in KINDS},
}

# (code, required slots, sentence); each whose slots are known is added.
_DETAILS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("cuda_oom", ("asked_gib",), "The failed allocation was {asked}."),
    ("cuda_oom", ("nccl_gib",), "NCCL failed to allocate a buffer of {nccl}."),
    ("cuda_oom", ("total_gib",), "The GPU has {total}."),
    ("cuda_oom", ("held_gib",), "Another process uses {held} of it: check that one first."),
    (
        "cuda_oom",
        ("fragmented_gib",),
        "{fragmented} are reserved by PyTorch but unallocated: the memory is fragmented.",
    ),
    ("host_oom", ("asked_gib",), "The failed allocation was {asked}."),
    ("fp16_overflow", ("loss_scale",), "The loss scale is down to {loss_scale:g}."),
    ("fp16_scale_floor", ("loss_scale",), "It is {loss_scale:g}."),
    ("nccl_timeout", ("timeout_s",), "The timeout was {timeout_s:g} s."),
    ("rendezvous_port_in_use", ("port",), "It is port {port:d}."),
    ("gpu_hw_ecc", ("xid",), "The driver reports Xid {xid:d}."),
    ("gpu_fell_off_bus", ("xid",), "The driver reports Xid {xid:d}."),
    ("gpu_mmu_fault", ("xid",), "The driver reports Xid {xid:d}."),
    (
        "sigkill",
        ("used_gib", "total_gib"),
        "Shortly before, {used} of the host's {total} of memory were in use: hardly the last.",
    ),
    ("vanished", ("last_step", "target_step"), "It is at step {last_step:d} of {target_step:d}."),
    ("cuda_arch_mismatch", ("sm",), "The architecture is sm_{sm:d}."),
    ("package_missing", ("package",), "It is {package} (`pip install {package}`)."),
    ("optional_package_missing", ("package",), "It is {package} (`pip install {package}`)."),
    ("package_mismatch", ("package",), "The version of {package} does not fit what imports it."),
    ("package_mismatch", ("package", "bound"), "Asked for is {package}{bound}."),
    ("package_mismatch", ("package", "version"), "Installed is {package} {version}."),
    ("import_outdated", ("importer", "package"), "{importer} imports it from {package}."),
    ("version_asked", ("package", "bound"), "Asked for is {package}{bound}."),
    ("version_asked", ("package", "version"), "Installed is {package} {version}."),
    ("library_versions", ("package",), "The call comes from {package}, in the installed version."),
    ("settings_exclusive", ("setting", "setting_other"), "They are {setting} and {setting_other}."),
)
# Where the text names a symptom that other causes have as well.
_LIKELY: dict[str, str] = {
    "host_oom": "A process was ended by signal 9 (SIGKILL): probably the host ran out of memory; a "
    "scheduler or a person may have done it, too.",
}
_RANK = "Rank {rank:d} reported it first."
_SAYS_REMEDY = "Its message itself says what is missing or what to do."
_WITHOUT_RANK = frozenset(
    {
        "benign_tokenizers_fork",
        "time_limit",
        "job_cancelled",
        "preempted_sigterm",
        "interrupted",
        "session_hangup",
        "sigkill",
    }
)
_GUESSED = "The log does not mention it; it is inferred from how the process ended."
_CONTINUED = "The training continued afterwards."
_PASSED = "It recovered by itself."
_LED_TO = "It led to {codes}."


def explain(
    code: str,
    slots: Mapping[str, Slot],
    *,
    led_to: Sequence[str] = (),
    guessed: bool = False,
    likely: bool = False,
    continued: bool = False,
    passed: bool = False,
    phase: Phase | None = None,
    says_remedy: bool = False,
) -> str:
    """The sentences of a code whose slots are known.

    `led_to`: codes of its symptoms. `likely`: the text alone does not say so. `guessed`: inferred
    from the process's end alone. `continued`: training came back after it. `passed`: it recovered
    by itself. `phase`: what the program was doing, where the code does not say it. `says_remedy`:
    the error's message asks the reader to do something.
    """
    said = EXPLANATIONS.get(code, "")  # a user's kind has its own words
    sentences = [_LIKELY.get(code, said) if likely else said]
    sizes = {
        name[:-4]: gib_text(value)
        for name, value in slots.items()
        if name.endswith("_gib") and not isinstance(value, str)
    }
    for of, needed, sentence in _DETAILS:
        if of == code and all(slot in slots for slot in needed):
            sentences.append(sentence.format(**slots, **sizes))
    if "rank" in slots and code not in _WITHOUT_RANK:
        sentences.append(_RANK.format(**slots))
    if phase is not None:
        sentences.append(WHILE[phase])
    if says_remedy:
        sentences.append(_SAYS_REMEDY)
    if guessed:
        sentences.append(_GUESSED)
    if continued:
        sentences.append(_CONTINUED)
    if passed:
        sentences.append(_PASSED)
    symptoms = [symptom for symptom in led_to if symptom in EXPLANATIONS]
    if symptoms:
        sentences.append(_LED_TO.format(codes=", ".join(symptoms)))
    return " ".join(filter(None, sentences))


def sentences(code: str) -> tuple[str, ...]:
    """All templates of sentences that `explain` may use for a code."""
    if code not in EXPLANATIONS:
        return ()
    details = (sentence for of, _, sentence in _DETAILS if of == code)
    likely = (_LIKELY[code],) if code in _LIKELY else ()
    phases = WHILE.values() if code in ("unknown_error", "cuda_oom") else ()
    common = (_SAYS_REMEDY, _RANK, _GUESSED, _CONTINUED, _PASSED, _LED_TO)
    return (EXPLANATIONS[code], *likely, *details, *phases, *common)
