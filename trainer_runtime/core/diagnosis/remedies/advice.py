"""Advice for people about failures that no patch fixes, most likely remedy first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainer_runtime.core.diagnosis.kinds import KINDS
from trainer_runtime.core.diagnosis.phase_text import OUT_OF_MEMORY, every_question, questions
from trainer_runtime.core.diagnosis.traceback_text import Phase
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.finding import Slot

_NOTHING: Mapping[str, Slot] = MappingProxyType({})
_FOR_NCCL = (
    "Leave memory for NCCL, which allocates outside PyTorch: a smaller micro-batch with more "
    "accumulation, or smaller buffers (NCCL_BUFFSIZE)."
)
_FRAGMENTED = (
    "Set PYTORCH_ALLOC_CONF=expandable_segments:True (before PyTorch 2.9 PYTORCH_CUDA_ALLOC_CONF), "
    "and sort or pad rows to few different lengths."
)
_FLASH_ATTENTION = (
    "`pip install flash-attn --no-build-isolation`, or take an attention that needs no package "
    '(attn_implementation="sdpa").'
)
_FROM_THE_FIRST = (
    "NaN from the first step on: try bf16 in the place of fp16, and check that labels are not all "
    "masked and that the base weights are finite."
)


def advice(
    code: str, slots: Mapping[str, Slot] = _NOTHING, phase: Phase | None = None
) -> tuple[str, ...]:
    """The advice for the code of a log finding; `slots` are the finding's, `phase` is what
    the program was doing."""
    if code == "unknown_error":
        return (*ADVICE[code], *questions(phase))
    if code == "package_missing" and slots.get("package") == "flash-attn":
        return (_FLASH_ATTENTION, *ADVICE[code])
    if code == "cuda_oom" and phase in OUT_OF_MEMORY:
        return (OUT_OF_MEMORY[phase], *ADVICE[code])
    if "fragmented_gib" in slots:
        return (_FRAGMENTED, *ADVICE.get(code, ()))
    if "nccl_gib" in slots and "asked_gib" not in slots:
        return (_FOR_NCCL, *ADVICE.get(code, ()))
    return ADVICE.get(code, ())


def sentences(code: str) -> tuple[str, ...]:
    """All sentences that `advice` may give for a code."""
    asked = every_question() if code == "unknown_error" else ()
    by_phase = OUT_OF_MEMORY.values() if code == "cuda_oom" else ()
    return (*asked, *by_phase, *ADVICE.get(code, ()), _FOR_NCCL, _FRAGMENTED, _FLASH_ATTENTION)


ADVICE: dict[str, tuple[str, ...]] = {
    "cuda_oom": (
        "Check which processes use the GPU's memory (nvidia-smi).",
        "Then use a smaller micro-batch with more accumulation, then activation checkpointing, "
        "then the next ZeRO stage; with an adapter, a quantized base model instead.",
    ),
    "host_oom": (
        "Check which processes use the machine's memory (`ps aux --sort=-rss`).",
        "Use fewer DataLoader workers, or load data lazily (memory-mapped).",
        "Raise the limit that was reached: Slurm --mem, docker --memory, Kubernetes "
        "resources.limits.memory (OOMKilled); systemd-oomd and Ray (RAY_memory_usage_threshold) "
        "kill before host memory is full.",
    ),
    "shm_too_small": (
        "Enlarge /dev/shm (docker: --shm-size=16g, or --ipc=host).",
        "Until then, use num_workers=0.",
    ),
    "dataloader_crash": ("Run with num_workers=0 to see the worker's own error.",),
    "hang_data": ("Check the storage that the data is read from; if slow, raise the timeout.",),
    "disk_full": ("Free space on the disk, or keep fewer checkpoints.",),
    "disk_filling": ("Free space on the disk before it is full.",),
    "disk_quota": ("Free space within the quota, or request a larger one.",),
    "nan_loss": (
        "Where finite losses came before: resume from a checkpoint before the NaN, skipping the "
        "data in between.",
        _FROM_THE_FIRST,
    ),
    "nan_grad": (
        "Where finite losses came before: resume from a checkpoint before the NaN; check for "
        "overflow in fp16.",
        _FROM_THE_FIRST,
    ),
    "nan_eval": (
        "Check for validation rows whose labels are all masked (-100) or cut off, and for an empty "
        "validation set.",
        "Evaluate in bf16 or fp32: fp16 overflows (`fp16_full_eval`).",
    ),
    "kl_negative": (
        "Generate without what the training does not use: temperature 1, top_k 0, top_p 1, no "
        "least length; and pad and mask as the training does.",
    ),
    "fp16_overflow": ("Watch it; bf16 does not have the problem.",),
    "fp16_scale_floor": ("Resume from a checkpoint before the overflows began, with bf16.",),
    "nccl_timeout": (
        "Compare the ranks' stacks: the rank that differs is the cause.",
        "Raise the timeout only if a slow step (evaluation, saving) explains it.",
    ),
    "nccl_peer_lost": ("Read the log of the lost rank, and its machine's kernel log.",),
    "node_lost": (
        (
            f"Find out what became of it: {command('hosts check', 'HOST')}, and on it "
            "`last -x reboot`."
        ),
        (f"Start its part again after a restart by {command('tick')}, or have a keeper do so."),
        f"Continue without it: {command('resume', 'RUN', '--set', 'compute.min_nodes=N')}, with "
        "how many hosts may be left; a scheduler leaves it out by --exclude=NODE.",
    ),
    "nccl_system_error": (
        "Restart with NCCL_DEBUG=INFO: it names the failing call.",
        "Check NCCL_SOCKET_IFNAME and that all machines reach each other.",
    ),
    "rendezvous_port_in_use": (
        "End the process that uses the port, or set another (--master-port, --rdzv-endpoint).",
    ),
    "ddp_unused_params": ("Use every parameter in the loss, or set find_unused_parameters=True.",),
    "cuda_illegal_memory": (
        "Restart with CUDA_LAUNCH_BLOCKING=1 to find the failing kernel.",
        "If the program works on other cards, have this one checked.",
    ),
    "index_out_of_range": (
        "Compare the largest token id in the data with the model's vocabulary.",
    ),
    "cuda_driver_too_old": ("Update the driver, or install a build for an older CUDA.",),
    "cuda_arch_mismatch": (
        "Install a newer PyTorch, built with a CUDA that lists this GPU's architecture "
        "(torch.cuda.get_arch_list(); CUDA 12.8 on for Blackwell, sm_120).",
        "Where ptxas or NVRTC does not know it: TRITON_PTXAS_PATH of a newer toolkit.",
    ),
    "flash_attn_abi_mismatch": ("Reinstall flash-attn for the installed PyTorch and CUDA.",),
    "bitsandbytes_cuda_setup": (
        "Install bitsandbytes with CUDA support; `python -m bitsandbytes` checks the setup.",
    ),
    "triton_missing": ("Install the Triton version that matches the installed PyTorch.",),
    "compiler_missing": (
        "Install gcc, ninja, the Python headers and the CUDA toolkit that matches PyTorch.",
    ),
    "nondeterministic_operation": (
        "Set compute.deterministic to false; a resumed run's losses may then differ in their last "
        "bits.",
    ),
    "gpu_hw_ecc": ("Reset the GPU or restart the machine; replace the card if the error recurs.",),
    "gpu_fell_off_bus": ("Restart the machine; check power, cooling and seating of the card.",),
    "gpu_mmu_fault": ("Check the program for an illegal memory access first.",),
    "checkpoint_corrupt": ("Resume from an older checkpoint that verifies.",),
    "checkpoint_shape_mismatch": (
        "Where only the optimizer's groups differ, layers were frozen, unfrozen or added: build "
        "them as then, or load the weights alone and begin with a fresh optimizer.",
        "Use the model shape that the checkpoint was saved with.",
        "Where only embeddings and lm_head differ, tokens were added: load the tokenizer saved "
        "beside the checkpoint and call model.resize_token_embeddings(len(tokenizer)) first.",
    ),
    "hf_gated_repo": (
        "Accept the repository's terms, provide a token (HF_TOKEN), and check the name.",
    ),
    "hf_network": (
        "Download beforehand and set HF_HUB_OFFLINE=1, or let the host reach the hub.",
        "Errors of the hub itself (500 to 504) pass: status.huggingface.co.",
    ),
    "dataset_columns": (
        "Provide the method's columns: prompt and completion or messages for sft, prompt, chosen "
        "and rejected for dpo and reward, prompt, completion and label for kto, prompt for grpo.",
    ),
    "lora_targets_missing": (
        'Set adapter.targets to auto (in PEFT target_modules="all-linear"), or to names of the '
        "model's linear modules: print(model) shows them.",
    ),
    "framework_settings": (
        "Make the batch divisible by ranks, micro-batch and generations; use bf16 only on devices "
        "that support it.",
        "If bf16 is refused, no GPU may be visible: where torch.cuda.is_available() is False, "
        "repair the driver or pass the GPUs to the container.",
    ),
    "tracker_no_credentials": (
        "List the tracker's variable under `secrets` (WANDB_API_KEY, NEPTUNE_API_TOKEN, "
        "COMET_API_KEY) and set its value where runs are started.",
        (
            "Or disable the service: `mode: offline` under the tracker's name, or "
            f"{option('--set', 'tracking={}')}."
        ),
    ),
    "io_error": (
        "Check the disk and its mount (`dmesg -T`, `df`): a network file system that went "
        "away or a failing disk.",
        "Train from a local copy of the data; resume from the newest checkpoint that verifies.",
    ),
    "too_many_open_files": (
        "Raise the limit before the training starts (`ulimit -n 65536`).",
        "Or use fewer loader workers, or "
        "torch.multiprocessing.set_sharing_strategy('file_system').",
    ),
    "arguments_refused": (
        "Compare the arguments in the spec with those that the program's `--help` lists; a Hydra "
        "override must name a key of the configuration (a new one needs `+key=value`).",
    ),
    "chat_template_missing": (
        "Name a tokenizer with a chat template (data.tokenizer), such as that of the model's "
        "instruct version, or give plain text.",
    ),
    "pad_token_missing": (
        "Set tokenizer.pad_token = tokenizer.eos_token before batches are made.",
    ),
    "data_malformed": (
        "Find the line that is not JSON (`python3 -m json.tool --json-lines FILE`), and give the "
        "format that the file really has.",
    ),
    "package_missing": (
        "Install it on the host, then resume.",
        f"Or launch again with {option('--set', 'environment.requirements=FILE')}, where FILE "
        "names it: the host builds an environment with it.",
        "`environment: auto` installs what the framework needs, and nothing for a program "
        "(`framework: script`).",
        "A module of the program itself travels with its folder unless git leaves it out.",
    ),
    "package_mismatch": (
        "Install compatible versions (see the plan's requirements.txt), or launch again with "
        "`environment: auto`; a program (`framework: script`) with "
        f"{option('--set', 'environment.requirements=FILE')}.",
        "A torchvision that is incompatible with PyTorch can be uninstalled: training on text "
        "does not need it.",
    ),
    "sigkill": (
        "Ask who else uses the machine, and read its scheduler's record of the job.",
        "`dmesg -T` on the host shows whether the kernel did it; `docker inspect` for a container.",
        "Resume: it continues from the last verified checkpoint.",
    ),
    "job_cancelled": (
        "Ask the user whom the scheduler's record names (Slurm: the number is the uid); resume if "
        "it was not meant.",
    ),
    "preempted_sigterm": ("Resume; on preemptible machines, save more often.",),
    "session_hangup": ("Start it independent of a terminal (setsid, tmux, a scheduler).",),
    "interrupted": ("Resume if the interrupt was not intended.",),
    "time_limit": ("Resume with a new time limit; a checkpoint right before it loses least.",),
    "vanished": (
        "Find out whether it still runs; if not, it was killed, or its machine or session went "
        "away: see the kernel's messages (`dmesg -T`), the scheduler, the session's limits.",
    ),
    "unknown_error": (
        "Read the log above this line: the frame in the evidence names the place in the program.",
        "Fix the cause before resuming; otherwise the same error recurs. These questions decide "
        "what it is:",
    ),
    "loss_spike": ("Watch whether the loss recovers; otherwise rewind and skip the data.",),
    **{kind.code: kind.advice for kind in KINDS},
}
