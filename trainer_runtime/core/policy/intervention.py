"""The policy on findings: which ones the host acts on by itself, and with which patch.

Findings are taken from the journal, so that a restarted supervisor decides as its predecessor would
have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.policy.patch import may_apply
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.states import REHEARSED_KILL

STALL, SPIKE, DIVERGENCE = "stall", "loss_spike", "divergence"
# The findings for which the supervisor ends a running attempt, and the field of `recovery` that
# says what follows.
RULES = {STALL: "on_stall", SPIKE: "on_spike", DIVERGENCE: "on_spike"}
INTERVENTIONS = frozenset(RULES)
# The session's time limit was reached: the run continues in the next session by itself.
SESSION_OVER = "session_over"
OUT_OF_MEMORY = frozenset({"cuda_oom", "host_oom"})
# Deterministic: the same at every try. A death by signal is never among them, nor what other
# machines may cure (the network, a disk that others fill).
DETERMINISTIC = frozenset(
    {
        "arguments_refused",
        "bitsandbytes_cuda_setup",
        "chat_template_missing",
        "checkpoint_shape_mismatch",
        "compiler_missing",
        "cuda_arch_mismatch",
        "cuda_driver_too_old",
        "data_malformed",
        "dataset_columns",
        "ddp_unused_params",
        "flash_attn_abi_mismatch",
        "framework_settings",
        "gpu_fell_off_bus",
        "hf_gated_repo",
        "index_out_of_range",
        "lora_targets_missing",
        "nondeterministic_operation",
        "package_mismatch",
        "package_missing",
        "pad_token_missing",
        "rendezvous_port_in_use",
        "tracker_no_credentials",
        "triton_missing",
    }
)
# Below, a cause is a guess: SIGKILL alone is host_oom at 0.4.
_SURE = 0.8
_NOT_HUNG = "slow_not_hung"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What a restart changes. `by` names the rule that chose it, and the patch."""

    code: str
    by: str
    set: Mapping[str, object] = field(default_factory=dict)
    resume_from: str | int = "latest"
    skip: Mapping[str, int] | None = None


def intervention(findings: Sequence[Finding], config: RunConfig) -> str | None:
    """What a running attempt is to be ended for: a key of `RULES`; None for nothing.

    Only for what is critical: a stall five times as long as its limit, a spike that stays, a loss
    that has come to half as much again as its lowest and does not come back. A stall
    whose stacks show a training that is merely slow is left alone.
    """
    recovery = config.recovery
    critical = {finding.code: finding for finding in findings if finding.severity == "critical"}
    slow = any(finding.code == _NOT_HUNG for finding in findings)
    if STALL in critical and recovery.on_stall is not None and not slow:
        return STALL
    on_spike = recovery.on_spike
    if on_spike in (None, "warn"):
        return None
    for code in (SPIKE, DIVERGENCE):
        finding = critical.get(code)
        if finding is not None and (on_spike == "stop" or _has(finding, config, on_spike)):
            return code
    return None


def restarts_after(why: str, config: RunConfig) -> bool:
    """Whether an attempt that is ended for this is to be followed by another one."""
    if why in (SESSION_OVER, REHEARSED_KILL):
        return True
    recovery = config.recovery
    rule = RULES.get(why)
    return rule is not None and not str(recovery.rule(rule)).endswith("stop")


def first_cause(findings: Sequence[Finding], codes: frozenset[str]) -> Finding | None:
    """The first finding of one of `codes` that ended the attempt for sure."""
    for finding in findings:
        if finding.code in codes and finding.severity == "critical":
            return finding if finding.confidence >= _SURE else None
    return None


def remedy_of(
    finding: Finding, config: RunConfig, rule: str, patch_id: str | None = None
) -> Remedy | None:
    """The first patch of a finding that the host may apply by itself; with `patch_id` only that."""
    for patch in finding.patches:
        if patch_id not in (None, patch.id) or not patch.keeps_batch:
            continue
        if may_apply(patch.set, patch.expected, config.document):
            by = f"policy:{rule} {patch.id}"
            return Remedy(finding.code, by, patch.set, patch.resume_from, patch.skip)
    return None


def _has(finding: Finding, config: RunConfig, patch_id: str) -> bool:
    return remedy_of(finding, config, "on_spike", patch_id) is not None
