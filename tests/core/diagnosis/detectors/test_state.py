"""Detectors as a whole: deterministic, restartable, and robust against any input."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.core.journal_records import evaluation, events, kept, metric, started
from support.core.metric_series import FIRST_T, all_codes, codes, feed

from trainer_runtime.core.diagnosis.detectors import Detectors, Settings
from trainer_runtime.core.diagnosis.detectors.messages import CODES
from trainer_runtime.core.protocol.finding import finding_id

CONFIG: Mapping[str, Any] = {
    "framework": "nanogpt",
    "method_args": {"beta": 0.1},
    "steps": 5000,
    "precision": "bf16",
    "optimizer": {"lr": 0.002, "grad_clip": 1.0},
    "batch": {"micro_batch": 8, "accumulation": 2},
    "checkpoint": {"every": "10m", "every_is_auto": True, "keep_latest": 3, "keep_best": 1},
    "eval": {"every_steps": 50},
    "derived": {"sequences_per_step": 16, "peak_flops": 312e12},
}
KEYS = (
    *("loss", "val_loss", "grad_norm", "lr", "tokens_per_s", "mfu", "step_time_s", "loss_scale"),
    *("rewards/margins", "rewards/accuracies", "rewards/chosen", "logps/chosen", "kl", "reward"),
    *("rewards/rejected", "logps/rejected", "val_rewards/accuracies", "frac_reward_zero_std"),
)
TELEMETRY = ("gpu_util", "gpu_util/0", "gpu_util/1", "gpu_temp_c", "host_mem_gib", "disk_free_gib")

anything = st.one_of(
    st.floats(), st.sampled_from([0.0, -0.0, 2.0, 2.0, 2.5, 9.0, 1e30, -1e300, 5e-324, math.nan])
)
points = st.tuples(st.just("point"), st.sampled_from(KEYS), st.integers(0, 40), anything)
samples = st.tuples(st.just("sample"), st.dictionaries(st.sampled_from(TELEMETRY), anything))
ticks = st.tuples(st.just("tick"), st.floats(-1e4, 1e4))
trainer_events = st.tuples(
    st.just("event"),
    st.sampled_from(
        ["started", "eval", "checkpoint", "phase", "completed", "attempt_starting", "warning", "?"]
    ),
    st.integers(0, 40),
    st.fixed_dictionaries(
        {},
        optional={
            "attempt": st.integers(1, 3),
            "action": st.sampled_from(["saved", "verified", "pruned", "failed"]),
            "code": st.sampled_from(["nan_loss", "nan_grad", "other"]),
            "size_bytes": st.integers(0, 1 << 40),
            "target_step": st.integers(0, 100),
        },
    ),
)
falling = st.tuples(st.just("falling"), st.integers(1, 60))
odd = st.tuples(st.just("odd"), st.floats(1.0, 20.0), st.integers(1, 60))
inputs = st.lists(st.one_of(points, samples, ticks, trainer_events, falling, odd), max_size=40)


def feed_input(detectors: Detectors, number: int, one: tuple[Any, ...]) -> None:
    """Feed one input; its number determines time and step."""
    t, step = FIRST_T + 30.0 * number, 100 * number
    kind, *rest = one
    if kind == "point":
        detectors.point(rest[0], step + rest[1], t, rest[2])
    elif kind == "sample":
        detectors.sample(t, rest[0])
    elif kind == "tick":
        detectors.tick(t + rest[0])
    elif kind == "event":
        detectors.event(rest[0], t, step + rest[1], rest[2])
    elif kind == "falling":
        feed(detectors, [3.0 - step / 1e5 + 0.01 * (i % 3) for i in range(rest[0])], step)
    else:
        feed(detectors, [3.0 * rest[0] + 0.01 * (i % 3) for i in range(rest[1])], step)


def reloaded(detectors: Detectors) -> Detectors:
    state = json.dumps(detectors.to_dict(), allow_nan=False)
    return Detectors.from_dict(json.loads(state), Settings.from_config(CONFIG))


@settings(max_examples=150)
@given(inputs, st.sets(st.integers(0, 40), max_size=5))
def test_state_reloaded_at_any_point_gives_the_same_findings(
    fed: list[tuple[Any, ...]], restarts: set[int]
) -> None:
    whole = Detectors(Settings.from_config(CONFIG), placement=3)
    parted = Detectors(Settings.from_config(CONFIG), placement=3)
    for number, one in enumerate(fed):
        if number in restarts:
            parted = reloaded(parted)
        feed_input(whole, number, one)
        feed_input(parted, number, one)
    assert parted.findings(closed=True) == whole.findings(closed=True)
    assert parted.entries() == whole.entries()
    assert reloaded(parted).to_dict() == whole.to_dict()


@settings(max_examples=100)
@given(inputs)
def test_any_input_gives_well_formed_findings(fed: list[tuple[Any, ...]]) -> None:
    detectors = Detectors(Settings.from_config(CONFIG))
    for number, one in enumerate(fed):
        feed_input(detectors, number, one)
    for finding in detectors.findings(closed=True):
        json.dumps(finding.to_dict(), allow_nan=False)
        assert finding.explanation and 0 <= finding.confidence <= 1
        assert all(math.isfinite(value) for value in finding.slots.values())
        assert "{" not in "".join([finding.explanation, *finding.evidence])


def test_host_and_client_give_a_finding_the_same_id() -> None:
    line = [metric(step, 3.0) for step in range(1, 30)] + [metric(30, math.nan)]
    on_host, on_client = Detectors(placement=2), Detectors(placement=2)
    for event in events([started(0, 100), *line]):
        on_host.feed(event)
        on_host.tick(event.t + 0.5)
    for event in events([started(0, 100), *line]):
        on_client.feed(event)
    ids = [finding.id for finding in on_host.findings()]
    assert ids == [finding.id for finding in on_client.findings()]
    assert ids == [finding_id(2, 1, "nan_loss", 30)]


def test_events_of_a_whole_attempt_are_taken_as_they_are() -> None:
    detectors = Detectors(Settings.from_config(CONFIG))
    whole = [started(0, 60)]
    for step in range(1, 61):
        whole.append(metric(step, 3.0 - step / 100, lr=0.001, grad_norm=1.0))
        whole += [evaluation(step, 3.1 - step / 100), *kept(step)] if step % 20 == 0 else []
    whole += [("completed", {"step": 60}), ("gossip", {"about": "nothing that is known"})]
    for event in events(whole):
        detectors.feed(event)
    assert all_codes(detectors) == []


def test_each_attempt_s_file_is_taken_under_its_number() -> None:
    lost = [started(0, 100), *[metric(step, 3.0) for step in range(1, 20)], metric(20, math.nan)]
    detectors = Detectors(placement=4)
    for attempt in (1, 2):
        for event in events(lost):
            detectors.feed(event, attempt)
    ids = [finding.id for finding in detectors.findings(closed=True)]
    assert ids == [finding_id(4, attempt, "nan_loss", 20) for attempt in (1, 2)]
    assert [finding.id for finding in detectors.findings()] == ids[1:]


def test_a_new_attempt_closes_what_the_one_before_left_open() -> None:
    detectors = feed(Detectors(), [3.0] * 20 + [math.nan] * 3)
    assert codes(detectors.findings()) == ["nan_loss"]
    detectors.event("attempt_ended", FIRST_T, None, {"attempt": 1})
    assert codes(detectors.findings()) == ["nan_loss"]
    detectors.event("attempt_starting", FIRST_T, None, {"attempt": 2})
    assert detectors.findings() == []
    before = detectors.findings(closed=True)[0].id
    detectors.event("started", FIRST_T, 10, {})
    feed(detectors, [3.0] * 10 + [math.nan], 11)
    again = detectors.findings()[0]
    assert (again.step, again.id != before) == (21, True)


def feed_distinct_keys_and_spikes(detectors: Detectors) -> None:
    for step in range(20_000):
        detectors.point(f"key/{step}", step, None, 1.0)
        detectors.point("loss", step, None, 1e6 if step % 64 > 61 else 3.0 + 0.01 * (step % 5))


def print_traced_peak() -> None:
    """Called in a process of its own, in which no other thread takes memory meanwhile."""
    tracemalloc.start()
    feed_distinct_keys_and_spikes(Detectors())
    print(tracemalloc.get_traced_memory()[1])


def test_a_million_distinct_keys_and_findings_take_no_memory() -> None:
    script = f"import runpy; runpy.run_path({__file__!r})['print_traced_peak']()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, check=True
    )
    assert int(done.stdout) < 2_000_000

    detectors = Detectors()
    feed_distinct_keys_and_spikes(detectors)
    assert len(detectors.findings(closed=True)) <= 65
    assert len(json.dumps(detectors.to_dict())) < 100_000


def test_every_code_of_a_series_has_its_message() -> None:
    assert set(CODES) == {
        "nan_loss",
        "nan_grad",
        "loss_spike",
        "loss_outliers",
        "divergence",
        "plateau",
        "overfitting",
        "grad_norm_rising",
        "throughput_drop",
        "slow_rank",
        "gpu_idle",
        "gpu_throttled",
        "checkpoint_overdue",
        "checkpoints_unmatched",
        "log_not_understood",
        "source_not_copied",
        "log_cut",
        "log_not_cut",
        "phase_missed",
        "dead_units",
        "disk_filling",
        "memory_rising",
        "resume_mismatch",
        "stall",
        "margin_collapse",
        "over_optimization",
        "kl_blowup",
        "reward_collapse",
        "not_learning",
        "loss_missing",
        "nan_eval",
        "nan_metric",
        "reward_std_nan",
        "kl_negative",
        "waits_for_service",
    }
    for message in CODES.values():
        assert message.explanation.endswith(".") and message.evidence


def test_state_of_another_format_is_refused() -> None:
    state = Detectors().to_dict() | {"format": 99}
    try:
        Detectors.from_dict(state)
    except ValueError as error:
        assert "99" in str(error)
    else:
        raise AssertionError("not refused")


def test_state_that_lacks_a_field_is_read_with_its_default() -> None:
    state = feed(Detectors(), [3.0] * 100).to_dict()
    del state["detectors"]["Throughput"]
    state["context"]["unknown"] = 1
    assert all_codes(feed(Detectors.from_dict(state), [3.0] * 100, 101)) == []


def test_patches_are_made_only_of_fields_that_are_there_and_keep_the_batch() -> None:
    detectors = Detectors(Settings.from_config(CONFIG))
    for action in ("saved", "verified"):
        detectors.event("checkpoint", FIRST_T, 15, {"action": action, "size_bytes": 1000})
    feed(detectors, [3.0] * 40 + [30.0] * 3)
    (finding,) = detectors.findings()
    patches = {patch.id: patch for patch in finding.patches}
    assert list(patches) == [
        "rewind_skip_data",
        "rewind_halve_lr",
        "rewind_tighter_clip",
        "denser_checkpoints",
    ]
    assert patches["rewind_skip_data"].skip == {"at_step": 15, "sequences": (43 - 15) * 16}
    assert patches["rewind_tighter_clip"].set == {"optimizer.grad_clip": 0.5}
    assert patches["denser_checkpoints"].set == {
        "checkpoint.every": "5m",
        "checkpoint.every_is_auto": False,
    }
    assert all(patch.keeps_batch for patch in finding.patches)
    assert {patch.resume_from for patch in finding.patches} == {15, "latest"}
    unknown = feed(Detectors(), [3.0] * 40 + [30.0] * 3)
    assert unknown.findings()[0].patches == ()
