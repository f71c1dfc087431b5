"""The sections of the spec on checkpoints, recovery, alerts and limits."""

from __future__ import annotations

from typing import Literal

from trainer_runtime.core.inputs.object_store import StoreAddress
from trainmaster.plan.fields.annotations import (
    Auto,
    Below1,
    Count,
    CountOrZero,
    Duration,
    Name,
    Positive,
    Section,
    Text,
    setting,
)
from trainmaster.plan.fields.place import such

_SAVER = "the saver"
_SUPERVISOR = "supervisor"


# A value of `checkpoint.mirror`: no copies, not even from a rented instance.
NO_MIRROR = "none"


def _mirror(value: str | None) -> bool:
    if value in (None, "operator", NO_MIRROR) or str(value).startswith("host:/"):
        return True
    return StoreAddress.find(str(value)) is not None


class CheckpointSpec(Section):
    """When training states are saved, and which are kept."""

    every: Auto | Count | Duration = setting(
        "auto",
        "Steps (a plain number) or time between checkpoints. auto goes by the job's length and is "
        "decided again by the trainer after 20 measured steps.",
        changes="box",
        unit="steps or duration",
        acts=_SAVER,
    )
    keep_latest: Count = setting(
        3,
        "How many of the newest are kept. Three survive two damaged ones.",
        changes="resume",
        unit="checkpoints",
        acts=_SAVER,
    )
    keep_best: CountOrZero = setting(
        1,
        "How many of the best by `metric` are kept.",
        changes="resume",
        unit="checkpoints",
        acts=_SAVER,
    )
    keep_every_steps: Count | None = setting(
        None,
        "Also keep each one whose step this divides. Null keeps none: it fills disks.",
        changes="resume",
        unit="steps",
        acts=_SAVER,
    )
    metric: Text = setting(
        "auto",
        "What best means: of losses (val_loss, val_loss/<source>) and val_perplexity less, of "
        "accuracies, margins and rewards (val_accuracy, val_rewards/margins, val_reward) more. "
        "auto is val_accuracy for reward, val_reward for grpo, else val_loss.",
        changes="resume",
        acts=_SAVER,
    )
    ema: Below1 | None = setting(
        None,
        "Also keep an exponential moving average of the weights with this decay, for example "
        "0.999: in fp32, in memory and in each checkpoint, evaluated as `val_loss_ema`. Null keeps "
        "none.",
        changes="resume",
    )
    mirror: Text | None = setting(
        None,
        "Where verified checkpoints are copied to: operator (the machine that launched), "
        "host:/path (another disk of the host), s3://BUCKET/PREFIX (gs://, az://: an object "
        "store) or none. Null is none, and operator on a "
        "rented instance, whose disk is deleted at the end of its lease.",
        changes="resume",
        acts=such(
            "supervisor",
            _mirror,
            "operator, none, host:/path for a folder of the host, or s3://bucket/prefix (gs://, "
            "az://) for an object store",
        ),
    )


class RecoverySpec(Section):
    """What the supervisor does by itself when something goes wrong."""

    max_restarts: CountOrZero = setting(
        3,
        "Restarts without a newer verified checkpoint in between. Three distinguish bad luck from "
        "a persistent fault.",
        changes="resume",
        unit="restarts",
        acts=_SUPERVISOR,
    )
    on_crash: Literal["resume", "stop"] = setting(
        "resume",
        "After a crash that a restart may cure.",
        changes="resume",
        acts=_SUPERVISOR,
    )
    on_nan: Literal["rewind_skip_data", "stop"] = setting(
        "rewind_skip_data",
        "After a loss or gradient that is not finite. The default goes back to the last "
        "checkpoint and leaves out the data in between.",
        changes="resume",
        acts=_SUPERVISOR,
    )
    on_spike: Literal["warn", "rewind_skip_data", "rewind_halve_lr", "stop"] = setting(
        "warn",
        "After a jump of the loss that stays: 50 steps, or two of over three times the loss. The "
        "default only reports it: most spikes recover. rewind_… resume from the last "
        "checkpoint before it and leave out the data, or halve the learning rate. So too after a "
        "divergence, a loss that remains 50 % above its lowest.",
        changes="resume",
        acts=_SUPERVISOR,
    )
    on_oom: Literal["patch", "stop"] = setting(
        "patch",
        "After running out of memory. The default halves the micro-batch and doubles the "
        "accumulation: each step still sees the same tokens, and the same again would fail again.",
        changes="resume",
        acts=_SUPERVISOR,
    )
    on_stall: Literal["stacks_restart", "stacks_stop"] = setting(
        "stacks_restart",
        "When steps stop coming for five times as long as the run's own pace explains, at least "
        "ten minutes: sample the stacks, then restart from the last checkpoint, since a hung "
        "trainer never ends by itself.",
        changes="resume",
        acts=_SUPERVISOR,
    )
    await_nodes: Duration = setting(
        "15m",
        "How long a training on several hosts waits for one that is lost, before the attempt "
        "counts as failed; the next one may go without it, by `compute.min_nodes`.",
        changes="resume",
        unit="duration",
        acts=_SUPERVISOR,
    )
    decide_within: Duration | None = setting(
        None,
        "Before a restart that changes or leaves out something, wait this long for the operator "
        "to choose first (resume, or stop). Null does not wait.",
        changes="resume",
        unit="duration",
        acts=_SUPERVISOR,
    )


class AlertSpec(Section):
    """A condition on a metric or a state, and the destination of its message."""

    name: Name = setting(..., "Its name in messages.", changes="resume", acts=_SUPERVISOR)
    severity: Literal["info", "warning", "critical"] = setting(
        "warning", "The severity of its messages.", changes="resume", acts=_SUPERVISOR
    )
    when: Text = setting(
        ...,
        'For example "val_loss > 3.5 for 3", "finding critical", "state failed", "silence 10m"; '
        "see alerts.md.",
        changes="resume",
        acts=_SUPERVISOR,
    )
    to: Text = setting(
        ..., "A destination named in the settings.", changes="resume", acts=_SUPERVISOR
    )


class LimitsSpec(Section):
    """Where the run is ended, over all its attempts."""

    max_runtime: Auto | Duration = setting(
        "auto",
        "Longest time of training. auto is 1.5 times the estimate, at least 24 h.",
        changes="resume",
        unit="duration",
        acts=_SUPERVISOR,
    )
    budget_usd: Positive | None = setting(
        None,
        "The most it may cost, over all its attempts, on a host that has a price: it shortens "
        "`max_runtime` to what it buys. A training that is expected to cost more is not started.",
        changes="resume",
        unit="US dollars",
        acts=_SUPERVISOR,
    )
