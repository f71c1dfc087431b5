"""The text of findings from series: a closed catalogue, filled with the detectors' own figures."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.diagnosis.detectors.ledger import Value
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.figures import number_text
from trainer_runtime.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """Templates over figure names. A line of `evidence` that lacks a figure is left out."""

    explanation: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...] = ()


def explanation(code: str, values: Mapping[str, Value]) -> str:
    if _has_spiked(code, values):
        return _SPIKED.format_map(values)
    if code == "nan_grad" and "key" in values:
        if values["key"] == "loss":
            return _ZEROS
        if "loss_at_onset" not in values:
            return _NO_LOSS
    cause = CAUSES.get(str(values.get("cause")), "")
    return f"{MESSAGES[code].explanation} {cause}".strip()


def advice(code: str, values: Mapping[str, Value]) -> tuple[str, ...]:
    if code in ("nan_loss", "nan_grad") and "key" in values and "last_finite_step" not in values:
        return _FROM_THE_FIRST_ADVICE
    return _SPIKED_ADVICE if _has_spiked(code, values) else MESSAGES[code].advice


def _has_spiked(code: str, values: Mapping[str, Value]) -> bool:
    return code == "grad_norm_rising" and values.get("spike_step") is not None


def sentences(code: str) -> tuple[str, ...]:
    """All templates of sentences that `explanation` and `advice` may use for a code."""
    if code not in MESSAGES:
        return ()
    message = MESSAGES[code]
    others = (_SPIKED, *_SPIKED_ADVICE, _ZEROS, _NO_LOSS, *_FROM_THE_FIRST_ADVICE)
    return (message.explanation, *CAUSES.values(), *message.advice, *others)


def evidence(code: str, values: Mapping[str, Value]) -> tuple[str, ...]:
    figures = {name: _format(value) for name, value in values.items() if value not in (None, [])}
    lines = []
    for template in MESSAGES[code].evidence:
        try:
            lines.append(template.format_map(figures))
        except KeyError:
            continue
    return tuple(lines)


def _format(value: Value) -> str:
    if isinstance(value, list):
        return " ".join(_format(item) for item in value)
    return number_text(value) if isinstance(value, float) else str(value)


_SPIKED = (
    "The gradient norm rose far above its usual level; the loss spike at step {spike_step} is part "
    "of the same event."
)
_SPIKED_ADVICE = ("Follow the advice of the loss spike's finding.",)
_ZEROS = (
    "The loss is exactly 0 at every point after one that was not small: HF Trainer's filter prints "
    "0 for a loss that is NaN."
)
_NO_LOSS = (
    "The gradient is NaN or infinite, and the log has no loss for that step, or 0: Megatron leaves "
    "out a loss that is NaN, and HF Trainer's filter prints 0 for it."
)
_FROM_THE_FIRST_ADVICE = (
    "No finite loss came before it in what was read. If the training began here, there is nothing "
    "to return to: try bf16 or fp32 in the place of fp16, and check that a batch has labels that "
    "are not masked, that the base weights are finite, and the learning rate.",
    "If it was resumed here, its checkpoint holds NaN already: use an earlier one.",
)
# What a finding of a series explains, by its code.
LED_TO: Mapping[str, tuple[str, ...]] = {"reward_std_nan": ("nan_grad", "nan_loss")}
_MACHINE = (
    "GPU utilisation {gpu_util} %",
    "GPU {gpu} alone: {gpu_alone_util} %",
    "GPU clock {gpu_clock_mhz} MHz, {best_clock_mhz} at its best",
    "GPU temperature {gpu_temp_c} °C, power {gpu_power_w} W",
    "share of the step spent waiting for data {data_time_share}",
    "share of the step spent waiting for other ranks {comm_time_share}",
    "MFU {mfu}",
    "CPU {cpu_util} % busy",
    "network {net_mib_s} MiB/s",
)

CAUSES: Mapping[str, str] = {
    "data_loading": "It waits for data: use more loader workers or prepare the data beforehand.",
    "communication": "It waits for other ranks: check the slowest rank and the network.",
    "network": "The network is busy with streamed data or other ranks' gradients.",
    "thermal": "It is hot: insufficient cooling or neighbouring load reduces its clock.",
    "power": "Its power limit reduces its clock.",
    "zero_loss": "The loss is 0 from the first point on: usually all labels are masked (-100), or "
    "the answers were cut off.",
    "zero_loss_and_gradient": "Loss and gradient norm are 0: usually all labels are masked (-100), "
    "or answers were cut off by the longest length.",
    "zero_loss_and_rate": "Loss and learning rate are 0: the optimizer is not stepped, or its "
    "steps are skipped since every gradient overflows; a loss of NaN can be printed as 0.",
    "zero_gradient": "The gradient norm is 0: no parameter is trained (all are frozen, the adapter "
    "is not attached, or the graph is cut by gradient checkpointing).",
    "zero_rate": "The learning rate is 0: its schedule has ended or was built for other steps, or "
    "the optimizer is not stepped.",
    "same_loss": "The loss is the same number at every point: no parameter is trained, or the "
    "program logs one batch or an old value.",
    "host": "The host feeds it too slowly: small kernels, Python overhead or a busy CPU.",
}

MESSAGES: Mapping[str, Message] = {
    "nan_loss": Message(
        "The loss is NaN or infinite; HF Trainer's filter prints 0.0 for it, beside a gradient "
        "norm of NaN. Checkpoints written since the onset can't be trusted.",
        (
            "{key} {value}",
            "last finite loss {last_finite_loss} at step {last_finite_step}",
            "lr {lr}",
        ),
        ("Resume from before the onset; later checkpoints already contain NaN.",),
    ),
    "nan_grad": Message(
        "The gradient is NaN or infinite, although the loss is finite.",
        (
            "{key} {value}",
            "last finite loss {last_finite_loss} at step {last_finite_step}",
            "lr {lr}",
        ),
        ("Resume from before the onset. HF Trainer's nan_filter logs such steps as loss 0.",),
    ),
    "loss_outliers": Message(
        "Single steps have a loss far above its level, which is back right afterwards.",
        ("{outliers} steps of 1.5 times the level and more, up to {factor} times", "steps {steps}"),
        (
            "Nothing has to be done while the loss falls; the same rows of data, or a batch that "
            "is too small, are the usual reasons.",
        ),
    ),
    "loss_spike": Message(
        "The loss jumped far above its previous level.",
        (
            "loss {loss_before} before, {loss} at the onset: a factor of up to {factor}",
            "peak {peak} at step {peak_step}; {lasted_steps} steps so far",
            "the losses before: {losses_before}",
            "gradient norm {grad_norm} at the onset, up to {grad_norm_peak}, {grad_norm_normal} "
            "normally",
            "lr {lr}",
            "trained on sequences {first_sequence} to {last_sequence}",
        ),
        (
            "If the loss recovers within a few steps, nothing needs to be done.",
            "If it doesn't, rewind and skip the data; if the spike recurs, halve the lr.",
        ),
    ),
    "divergence": Message(
        "The loss keeps rising: most of its newest values lie above its best level.",
        (
            "median of the newest losses {loss}, {lowest} at step {lowest_step}: {factor} times",
            "lr {lr}",
        ),
        ("The learning rate is the most likely cause, then a change in the data.",),
    ),
    "not_learning": Message(
        "Nothing is learnt, though steps continue.",
        ("{points} points in a row", "loss {loss}", "gradient norm {grad_norm}", "lr {lr}"),
        (
            "Stop it, and print one batch: its labels, which of them are masked, and which "
            "parameters require a gradient.",
            "Check that optimizer and schedule are stepped, with the rate that was meant.",
        ),
    ),
    "loss_missing": Message(
        "Steps continue, but the log no longer has their loss: Megatron leaves out a loss that is "
        "NaN; otherwise the program has stopped logging it.",
        ("last loss at step {last_loss_step}, none at {steps_without} steps since",),
        ("Check the gradient norm and the skipped or NaN iterations of the steps since.",),
    ),
    "nan_eval": Message(
        "The validation loss is NaN or infinite, but no training loss that was read is.",
        (
            "{key} {value}",
            "last training loss {last_finite_loss} at step {last_finite_step}",
        ),
        (
            "Check for validation rows whose labels are all masked (-100) or cut off, and for an "
            "empty validation set.",
            "Evaluate in bf16 or fp32: fp16 overflows (`fp16_full_eval`).",
            "Best checkpoints and early stopping that go by it choose at random.",
        ),
    ),
    "nan_metric": Message(
        "Rewards, log-probabilities or the divergence are NaN at every point, though the loss is "
        "finite.",
        ("{key} {value}", "lr {lr}"),
        (
            "Check for answers without tokens, and for a reward function that returns NaN.",
            "Train in bf16 in the place of fp16: log-probabilities overflow there.",
        ),
    ),
    "reward_std_nan": Message(
        "The deviation of the rewards is NaN: with one generation per prompt it is that of a "
        "single value, and every advantage becomes NaN.",
        ("{key} {value}", "lr {lr}"),
        (
            "Set num_generations to 2 or more (8 is usual).",
            "With more than one, check for a reward function that returns NaN.",
        ),
    ),
    "kl_negative": Message(
        "The KL divergence stays below 0, which no divergence is: the answers are not sampled from "
        "the policy as it is trained.",
        ("{key} {kl} at {points} points in a row",),
        (
            "Generate without what the training does not use: temperature 1, top_k 0, top_p 1, no "
            "least length; and pad and mask as the training does.",
            "Check that the model that generates has the newest weights.",
        ),
    ),
    "waits_for_service": Message(
        "The log ends in one message of retrying over and over: it waits for a service that does "
        "not answer.",
        ("{times} times at the end: {line}",),
        (
            "Check that the service runs, and that its address and port are those that it is "
            "asked at: its own log says why it is not up.",
        ),
    ),
    "plateau": Message(
        "The loss has not fallen for half of the attempt. That alone is not a reason to stop: it "
        "often falls further once the learning rate decays.",
        ("loss {loss}, no decrease since step {since_step}", "lr {lr}"),
        ("Check the schedule first: the loss often falls further once the learning rate decays.",),
    ),
    "grad_norm_rising": Message(
        "The gradient norm rose far above its usual level; a loss spike may follow.",
        ("gradient norm {grad_norm_peak} against {grad_norm_normal}: {factor} times", "lr {lr}"),
        ("Watch the next steps; with a checkpoint now a rewind would lose little.",),
    ),
    "stall": Message(
        "No step for longer than the run's usual pace explains.",
        (
            "silent for {silent_s} s; the limit at its pace is {limit_s} s",
            "99 of 100 steps take at most {p99_interval_s} s",
        ),
        ("Inspect the stacks of every rank (`inspect`): they distinguish a hang from slowness.",),
    ),
    "throughput_drop": Message(
        "The run has become slower.",
        ("{key} {before} before, {now} now: a loss of {drop}",),
        ("Check data loading and other load on the machine.",),
    ),
    "slow_rank": Message(
        "One rank is slower than the others, which wait for it in every synchronous step.",
        (
            "rank {rank}: {key} {behind} times slower than the median of {ranks} ranks",
            "rank {rank} is on the host {host}",
            "the slowest in {slowest_in} of the last {of} steps that the ranks reported",
        ),
        (
            "Check that rank's GPU (clock, temperature, ECC errors), and its machine's processor, "
            "disk and network.",
        ),
    ),
    "gpu_idle": Message(
        "The GPU is idle for much of the time.",
        _MACHINE,
        ("Check what it waits for: data, other ranks, or the CPU that feeds it.",),
    ),
    "gpu_throttled": Message(
        "The GPU is throttled.",
        _MACHINE,
        ("Check cooling and power limit (`nvidia-smi -q -d PERFORMANCE`).",),
    ),
    "overfitting": Message(
        "The validation loss rises while the training loss still falls.",
        (
            "val_loss {val_loss}, {best_val_loss} at step {best_step}",
            "training loss {loss}, {loss_at_best} then",
        ),
        ("The best checkpoint is kept; more data, fewer epochs or more dropout would help.",),
    ),
    "memory_rising": Message(
        "Memory in use rises steadily.",
        (
            "{key} {now_gib}, rising by {gib_per_h} GiB per hour",
            "the limit of {limit_gib} GiB is reached in {hours_left} hours",
        ),
        ("The usual leak is values kept across steps (losses with their graph, caches).",),
    ),
    "checkpoint_overdue": Message(
        "No checkpoint for much longer than planned: a crash now would lose all work since then.",
        ("{steps_since} steps and {hours_since} hours of work since step {saved_step}",),
        ("Check the log and the disk: a save may hang or fail.",),
    ),
    "checkpoints_unmatched": Message(
        "`script.checkpoints` matches nothing that the program has written: a crash would lose all "
        "of its work.",
        (
            "script.checkpoints.path is {pattern}",
            "written since the start: {files}",
            "files like checkpoints, written since the start: {no_files}",
        ),
        (
            "Launch again with a script.checkpoints.path that matches what it saves, as seen from "
            "the program's folder.",
        ),
    ),
    "log_not_understood": Message(
        "No metrics were read from the program's log: its steps and losses are not known, and its "
        "hangs are not found. The training itself is not affected.",
        (
            "{lines} lines with numbers so far",
            "its pattern is {pattern}",
            "drafted as a LINE of it: {draft}",
            "{sample_1}",
            "{sample_2}",
            "{sample_3}",
        ),
        (
            f"{command('metrics', 'RUN', '--pattern', 'LINE')} has this machine read it: LINE is "
            "one of its lines with names in braces for its numbers (docs/logs.md). With "
            "script.pattern, or attached again with it, its host reads it, too.",
            "Or have the program report its steps itself (docs/any-program.md).",
        ),
    ),
    "source_not_copied": Message(
        "The log that is followed is not copied any further: the host has no more room for it. The "
        "training is still watched, by its processes and the length of its log; steps and metrics "
        "that it logs from here on are not known.",
        (
            "{read_gib} GiB of the {size_gib} GiB of the log were read",
            "the host copies {source_gib} GiB of one log",
            "the host writes {run_gib} GiB for one run that it follows",
            "the host writes {root_gib} GiB for all runs that it follows",
            "{disk_gib} GiB of the host's disk stay free",
            "the log was replaced {replaced} times",
        ),
        (
            "Free space on the host, or raise the bound in `limits.json` in the folder of its runs "
            "(docs/hosts.md): copying then continues where it stopped.",
            (
                f"Or attach again with {option('--from', 'end')}, which leaves out what "
                "was written before."
            ),
        ),
    ),
    "log_cut": Message(
        "The log has grown so long that its middle was freed on the host. Its beginning and its "
        "newest lines are kept; the training itself is not affected.",
        ("the log had {size_gib} GiB; the host keeps {source_gib} GiB of it at most",),
        (
            "Have the program print less, or raise `source_gib` in `limits.json` in the folder of "
            "the host's runs (docs/hosts.md).",
        ),
    ),
    "log_not_cut": Message(
        "The log has grown beyond its bound, and the host's file system can't free a part of a "
        "file. It stays whole while the disk keeps its margin; below that it is emptied, and only "
        "its first and newest lines are kept beside it.",
        ("the log has {size_gib} GiB; its bound is {source_gib} GiB",),
        (
            "Have the program print less, or give the host a root on another file system (ext4, "
            "XFS, Btrfs).",
        ),
    ),
    "disk_filling": Message(
        "The disk is filling up.",
        (
            "{free_gib} GiB free, full in {hours_left} hours",
            "{free_gib} GiB free, {needed_gib} needed for the next checkpoint",
        ),
        ("Free space (`clean`), or keep fewer checkpoints.",),
    ),
    "margin_collapse": Message(
        "The margin between chosen and rejected answers had been learnt and is lost again.",
        (
            "margin {margin}, {peak} at step {peak_step}; {lowest} at its lowest",
            "share of pairs ranked correctly {accuracy}",
            "lr {lr}",
        ),
        (
            "Check the pairs from the onset on for swapped labels or a different source.",
            "If the pairs are correct, the learning rate is the usual cause.",
        ),
    ),
    "over_optimization": Message(
        "The preference is over-optimised: the policy has moved far from its reference, or "
        "held-out pairs are ranked worse again.",
        (
            "margin {margin} with rewards/chosen {chosen} and logps/chosen {chosen_logps}",
            "chosen answers are less likely than under the reference by {chosen_fell} of their "
            "nats",
            "rejected answers by {rejected_fell} (beta {beta})",
            "held-out pairs ranked correctly {val_accuracy}, {best_val_accuracy} at step "
            "{best_step}",
            "training margin {margin}, {margin_at_best} then",
            "lr {lr}",
        ),
        (
            "Compare answers of earlier checkpoints: the best one is often far before the end.",
            "A larger beta, a lower learning rate or fewer epochs keep it closer to the reference.",
        ),
    ),
    "kl_blowup": Message(
        "The policy diverges from its reference: the KL divergence rose far above its usual level.",
        ("{key} {kl}, {kl_usual} before", "lr {lr}"),
        ("Read samples: if they are gibberish or all the same, the policy has collapsed.",),
    ),
    "reward_collapse": Message(
        "All answers to a prompt get the same reward, so there is nothing to learn from.",
        (
            "reward {reward}, {best_reward} at its best; identical for {points} points",
            "the reward is at its best since step {solved_at}: the task seems to be solved",
            "every answer was cut off at its greatest length for {clipped} points",
        ),
        (
            "Read samples and their rewards: a failing reward function gives all the same reward.",
            "Where answers are cut off, raise max_completion_length, or see why they do not end.",
            "Use harder prompts, more generations per prompt or a higher temperature.",
        ),
    ),
    "resume_mismatch": Message(
        "The loss differs after the resume: part of the state was not restored, or the data "
        "changed.",
        (
            "loss {loss} after the resume, {loss_before} at step {before_step}: {factor} times",
            "lr {lr}, {lr_before} then",
        ),
        ("Check that optimizer, schedule, data position and scaler were restored.",),
    ),
}
