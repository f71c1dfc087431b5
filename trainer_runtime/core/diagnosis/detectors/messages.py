"""What findings of series say: a closed catalogue whose slots hold the detectors' own figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer_runtime.core.diagnosis.detectors.ledger import Value


@dataclass(frozen=True, slots=True)
class Words:
    """Templates by figure names. A line of `evidence` that lacks a figure is left out."""

    explanation: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...] = ()


def explained(code: str, values: Mapping[str, Value]) -> str:
    if _has_spiked(code, values):
        return _SPIKED.format_map(values)
    cause = CAUSES.get(str(values.get("cause")), "")
    return f"{WORDS[code].explanation} {cause}".strip()


def advised(code: str, values: Mapping[str, Value]) -> tuple[str, ...]:
    return _SPIKED_ADVICE if _has_spiked(code, values) else WORDS[code].advice


def _has_spiked(code: str, values: Mapping[str, Value]) -> bool:
    return code == "grad_norm_rising" and values.get("spike_step") is not None


def evidence(code: str, values: Mapping[str, Value]) -> tuple[str, ...]:
    figures = {name: _shown(value) for name, value in values.items() if value not in (None, [])}
    lines = []
    for template in WORDS[code].evidence:
        try:
            lines.append(template.format_map(figures))
        except KeyError:
            continue
    return tuple(lines)


def _shown(value: Value) -> str:
    if isinstance(value, list):
        return " ".join(_shown(item) for item in value)
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


_SPIKED = (
    "The gradient norm rose far above its usual size; the loss spike at step {spike_step} belongs "
    "to it."
)
_SPIKED_ADVICE = ("The loss spike's own finding says what to do.",)
_MACHINE = (
    "GPU utilisation {gpu_util} %",
    "GPU {gpu} alone: {gpu_alone_util} %",
    "GPU clock {gpu_clock_mhz} MHz, {best_clock_mhz} at its best",
    "GPU temperature {gpu_temp_c} °C, power {gpu_power_w} W",
    "share of the step that waits for data {data_time_share}",
    "share of the step that waits for other ranks {comm_time_share}",
    "MFU {mfu}",
    "processor {cpu_util} % busy",
    "network {net_mib_s} MiB/s",
)

CAUSES: Mapping[str, str] = {
    "data_loading": "It waits for data: more loader workers or data prepared beforehand help.",
    "communication": "It waits for other ranks: look at the slowest rank and at the network.",
    "network": "The network is busy: data that is streamed, or other ranks' gradients.",
    "thermal": "It is hot: cooling, or a neighbour's load, slows its clock.",
    "power": "It is held back by its power limit.",
    "host": "The host feeds it too slowly: small kernels, Python's own time, a busy processor.",
}

WORDS: Mapping[str, Words] = {
    "nan_loss": Words(
        "The loss is no number any more. Checkpoints written since are not to be trusted.",
        (
            "{key} {value}",
            "last finite loss {last_finite_loss} at step {last_finite_step}",
            "lr {lr}",
        ),
        ("Resume from before the onset; a resume from a later checkpoint goes on with NaN.",),
    ),
    "nan_grad": Words(
        "The gradient is no number, though the loss looks like one.",
        (
            "{key} {value}",
            "last finite loss {last_finite_loss} at step {last_finite_step}",
            "lr {lr}",
        ),
        ("Resume from before the onset. HF Trainer's nan_filter shows such steps as loss 0.",),
    ),
    "loss_spike": Words(
        "The loss jumped far above what it had been.",
        (
            "loss {loss_before} before, {loss} at the onset: a factor of up to {factor}",
            "peak {peak} at step {peak_step}; {lasted_steps} steps so far",
            "the losses before: {losses_before}",
            "gradient norm {grad_norm} at the onset, up to {grad_norm_peak}, {grad_norm_normal} "
            "normally",
            "lr {lr}",
            "made of the sequences {first_sequence} to {last_sequence}",
        ),
        (
            "One that comes back within some steps can be left alone.",
            "One that stays: rewind and leave out the data; if it comes again, halve the lr.",
        ),
    ),
    "divergence": Words(
        "The loss has been rising for good: most of its newest values lie above its best.",
        (
            "median of the newest losses {loss}, {lowest} at step {lowest_step}: {factor} times",
            "lr {lr}",
        ),
        ("The learning rate is the usual cause, a change in the data the next.",),
    ),
    "plateau": Words(
        "The loss has not fallen for half of the attempt. That is no reason to stop by itself: a "
        "schedule that is still to decay often takes it further.",
        ("loss {loss}, no fall since step {since_step}", "lr {lr}"),
        ("Look at the schedule first: a rate that is still to fall often takes the loss further.",),
    ),
    "grad_norm_rising": Words(
        "The gradient norm rose far above its usual size; a loss spike may follow.",
        ("gradient norm {grad_norm_peak} against {grad_norm_normal}: {factor} times", "lr {lr}"),
        ("Watch the next steps; a checkpoint right now lets a rewind lose little.",),
    ),
    "stall": Words(
        "No step for longer than this run's own pace explains.",
        (
            "silent for {silent_s} s; {limit_s} s would be within its pace",
            "99 of 100 steps come within {p99_interval_s} s",
        ),
        ("Look at the stacks of every rank (`inspect`): they tell a hang from slowness.",),
    ),
    "throughput_drop": Words(
        "The run has become slower.",
        ("{key} {before} before, {now} now: {drop} of it lost",),
        ("Look at the GPUs' clocks, at data loading, and at who else uses the machine.",),
    ),
    "gpu_idle": Words(
        "The GPU waits for much of the time.",
        _MACHINE,
        ("Look at what it waits for: data, other ranks, or the processor that feeds it.",),
    ),
    "gpu_throttled": Words(
        "The GPU is slowed down.",
        _MACHINE,
        ("Look at cooling and power limit (`nvidia-smi -q -d PERFORMANCE`).",),
    ),
    "overfitting": Words(
        "The validation loss rises while the training loss still falls.",
        (
            "val_loss {val_loss}, {best_val_loss} at step {best_step}",
            "training loss {loss}, {loss_at_best} then",
        ),
        ("The best checkpoint stands; more data, fewer epochs or more dropout would help.",),
    ),
    "memory_rising": Words(
        "Memory in use rises steadily.",
        (
            "{key} {now_gib}, rising by {gib_per_h} GiB an hour",
            "{limit_gib} GiB are reached in {hours_left} hours",
        ),
        ("Values kept from step to step (losses with their graph, caches) are the usual leak.",),
    ),
    "checkpoint_overdue": Words(
        "No checkpoint for far longer than planned: a crash now loses all of that.",
        ("{steps_since} steps and {hours_since} hours of work since step {saved_step}",),
        ("Look at the log and at the disk: a save may hang or fail.",),
    ),
    "disk_filling": Words(
        "The disk is filling up.",
        (
            "{free_gib} GiB free, full in {hours_left} hours",
            "{free_gib} GiB free, {needed_gib} needed for the next checkpoint",
        ),
        ("Remove what is not needed (`clean`), or keep fewer checkpoints.",),
    ),
    "margin_collapse": Words(
        "The margin between chosen and rejected answers, once learnt, is lost again.",
        (
            "margin {margin}, {peak} at step {peak_step}; {lowest} at its lowest",
            "share of pairs ranked rightly {accuracy}",
            "lr {lr}",
        ),
        (
            "Look at the pairs from the onset on: swapped labels or another source unlearn it.",
            "If the pairs are sound, the learning rate is the usual cause.",
        ),
    ),
    "over_optimization": Words(
        "The margin is widened beyond what it is good for: the policy has moved far from its "
        "reference, or held-out pairs are ranked worse again.",
        (
            "margin {margin} with rewards/chosen {chosen} and logps/chosen {chosen_logps}",
            "against the reference chosen answers are less likely by {chosen_fell} of their nats",
            "rejected ones by {rejected_fell} (beta {beta})",
            "held-out pairs ranked rightly {val_accuracy}, {best_val_accuracy} at step {best_step}",
            "training margin {margin}, {margin_at_best} then",
            "lr {lr}",
        ),
        (
            "Compare answers of an earlier checkpoint: the best one often lies far before the end.",
            "A larger beta, a lower rate or fewer epochs hold it closer to the reference.",
        ),
    ),
    "kl_blowup": Words(
        "The policy runs away from its reference: the KL divergence rose far above its course.",
        ("{key} {kl}, {kl_usual} before", "lr {lr}"),
        ("Read samples: text that is no language any more, or one answer to everything, ends it.",),
    ),
    "reward_collapse": Words(
        "The answers to a prompt all get the same reward, so there is nothing to learn from.",
        (
            "reward {reward}, {best_reward} at its best; alike for {points} points",
            "the reward is at its best since step {solved_at}: the task looks solved",
        ),
        (
            "Read samples and their rewards: a reward function that fails gives the same to all.",
            "Harder prompts, more generations a prompt or a higher temperature tell answers apart.",
        ),
    ),
    "resume_mismatch": Words(
        "After the resume the loss is unlike before: not all of the state came back, or the data "
        "is another.",
        (
            "loss {loss} after it, {loss_before} at step {before_step}: {factor} times",
            "lr {lr}, {lr_before} then",
        ),
        ("Check what was restored: optimizer, schedule, data position, scaler.",),
    ),
}
