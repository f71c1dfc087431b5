"""Which failure causes which: the table that finds the root cause."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds import KINDS, Kind

SIGNALS = frozenset(
    {"job_cancelled", "preempted_sigterm", "session_hangup", "interrupted", "time_limit"}
)
COLLECTIVES = frozenset({"nccl_timeout", "nccl_peer_lost", "nccl_system_error"})
# They end a process, whatever other processes report afterwards.
CRASHES = frozenset(
    {
        "cuda_oom",
        "host_oom",
        "node_lost",
        "shm_too_small",
        "dataloader_crash",
        "disk_full",
        "disk_quota",
        "io_error",
        "too_many_open_files",
        "arguments_refused",
        "chat_template_missing",
        "pad_token_missing",
        "data_malformed",
        "cuda_illegal_memory",
        "index_out_of_range",
        "cuda_driver_too_old",
        "cuda_arch_mismatch",
        "flash_attn_abi_mismatch",
        "bitsandbytes_cuda_setup",
        "triton_missing",
        "compiler_missing",
        "nondeterministic_operation",
        "gpu_hw_ecc",
        "gpu_fell_off_bus",
        "gpu_mmu_fault",
        "checkpoint_corrupt",
        "checkpoint_shape_mismatch",
        "hf_gated_repo",
        "hf_network",
        "dataset_columns",
        "lora_targets_missing",
        "framework_settings",
        "tracker_no_credentials",
        "package_missing",
        "package_mismatch",
        "ddp_unused_params",
        "rendezvous_port_in_use",
        "fp16_scale_floor",
        "hang_data",
        *(kind.code for kind in KINDS if kind.ends),
    }
)
# What a killed process alone may mean; an announced signal explains it in any order.
KILLED = frozenset({"host_oom", "shm_too_small"})
# Schedulers and launchers end the other processes after any error of the program.
_UNNAMED = frozenset({"unknown_error"})
_ERRORS = CRASHES | _UNNAMED
_GONE = frozenset({"native_crash", "ray_worker_died"})
# What others do to a process, or what it notices of theirs: an exception before it says why.
DONE_BY_OTHERS = SIGNALS | COLLECTIVES | _GONE
# What any other code of the same text says more exactly.
GENERAL = frozenset({"connection_refused", "file_missing"})
# code -> codes that the same texts name too, less exactly
INSTEAD_OF: dict[str, frozenset[str]] = {
    kind.code: GENERAL.difference((kind.code,)).union(kind.instead_of) for kind in KINDS
}


def _leading_to(kind: Kind) -> frozenset[str]:
    return frozenset(kind.follows) if kind.ends else CRASHES | frozenset(kind.follows)


# symptom -> causes, in any order of occurrence
ALWAYS: dict[str, frozenset[str]] = {
    "nccl_timeout": CRASHES | {"time_limit"},
    "nccl_peer_lost": CRASHES | {"time_limit"},
    "nccl_system_error": CRASHES | {"time_limit", "nccl_peer_lost"},
    "dataloader_crash": SIGNALS
    | {
        "host_oom",
        "shm_too_small",
        "disk_full",
        "disk_quota",
        "cuda_oom",
        "cuda_illegal_memory",
        "index_out_of_range",
    },
    "hang_data": frozenset({"host_oom", "shm_too_small", "dataloader_crash"}),
    "preempted_sigterm": frozenset({"time_limit", "job_cancelled"}),
    "cuda_illegal_memory": frozenset({"gpu_hw_ecc", "gpu_fell_off_bus", "index_out_of_range"}),
    "gpu_mmu_fault": frozenset({"gpu_hw_ecc", "gpu_fell_off_bus", "cuda_illegal_memory"}),
    "disk_full": frozenset({"disk_quota"}),
    "disk_filling": frozenset({"disk_full", "disk_quota"}),
    "hf_network": frozenset({"hf_gated_repo"}),
    "bitsandbytes_cuda_setup": frozenset({"cuda_driver_too_old"}),
    "cuda_arch_mismatch": frozenset({"cuda_driver_too_old"}),
    "compiler_missing": frozenset({"disk_full", "disk_quota", "triton_missing"}),
    "fp16_overflow": frozenset({"fp16_scale_floor"}),
    **{kind.code: _leading_to(kind) for kind in KINDS if kind.follows or not kind.ends},
}

# symptom -> causes that occurred before it
IF_EARLIER: dict[str, frozenset[str]] = {
    "nccl_timeout": SIGNALS | {"nccl_peer_lost", "nccl_system_error"} | _UNNAMED,
    "nccl_peer_lost": SIGNALS | {"nccl_timeout"} | _UNNAMED,
    "nccl_system_error": SIGNALS | {"nccl_timeout"} | _UNNAMED,
    **dict.fromkeys(("time_limit", *KILLED, *_GONE), _UNNAMED),
    "job_cancelled": _ERRORS | COLLECTIVES | {"time_limit"},
    "preempted_sigterm": _ERRORS | COLLECTIVES | {"session_hangup", "interrupted"},
    "session_hangup": _ERRORS | COLLECTIVES | {"preempted_sigterm"},
    "interrupted": _ERRORS | COLLECTIVES | {"preempted_sigterm", "session_hangup", "time_limit"},
    "checkpoint_corrupt": frozenset({"disk_full", "disk_quota"}),
    "cuda_illegal_memory": SIGNALS | {"cuda_oom"},
    "nan_grad": frozenset({"nan_loss"}),
    "nan_loss": frozenset({"nan_grad"}),
    "fp16_scale_floor": frozenset({"nan_loss", "nan_grad"}),
}
