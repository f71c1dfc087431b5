"""`diagnose --speed`: how fast a training is against what its model reaches, and what would help.

Gains of computing come from the plan, made again with one value changed and without what earlier
runs measured, which knows no other values; gains of saves and evaluations from the run's own time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.diagnosis.remedies import rules, value_at
from trainer_runtime.core.environment.gpus import find_gpu
from trainer_runtime.core.frameworks import framework_of
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import number_text, rounded, share_text
from trainer_runtime.core.protocol.lines import number
from trainer_runtime.core.status.reckoning import IDLE, QUEUE, TRAINING
from trainmaster.answers.diagnosis import DiagnosisAnswer, SpeedChange, SpeedReport
from trainmaster.errors.errors import TrainmasterError, UsageError
from trainmaster.metrics.run_series import run_points
from trainmaster.plan.decisions.throughput import SPREAD_MODELLED
from trainmaster.plan.facts import Calibration
from trainmaster.plan.fields.annotations import count_of
from trainmaster.plan.imagined import destination_of
from trainmaster.plan.planned import Planned, plan_again
from trainmaster.plan.speed import Reach, reach_of
from trainmaster.runs.diagnosis.attempt_changes import newest_config
from trainmaster.runs.diagnosis.profile import newest_profile
from trainmaster.runs.diagnosis.profile_report import bottlenecks, profile_report
from trainmaster.sync.reckoning import reckoning_of
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

SPEED = "speed"
_LEAST_GAIN = 1.01
_NOT_RUNNING = frozenset({QUEUE, IDLE, "preparation", "crash", "rework"})
_MUCH_DATA = 0.1
_FAR_BELOW = 0.5
_ELSEWHERE = (
    "So much is lost to waiting for data or other machines, to fp32, or to a tiny micro-batch."
)
_CPU = "MFU isn't judged: the peak of this device is not known."
Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatedSpeed:
    """What a person states of a training: `parameters` as `7B`, `gpus` as `a100:8`, and whether it
    is compiled."""

    parameters: str | None = None
    tokens_per_s: float | None = None
    gpus: str | None = None
    compiled: bool = False

    @property
    def names_a_model(self) -> bool:
        return self.parameters is not None or self.gpus is not None or self.compiled


@dataclass(frozen=True, slots=True)
class _Rule:
    """A change of the configuration for speed. `cause`: whose share of the time it halves; None
    where the plan says what it gains."""

    id: str
    why: str
    changes: Callable[[Config], dict[str, Any]]
    cause: str | None = None


def _set(path: str, before: object, after: object) -> Callable[[Config], dict[str, Any]]:
    return lambda config: {path: after} if value_at(config, path) == before else {}


_RULES = (
    _Rule("bf16", "Tensor cores compute half precision.", _set("precision", "fp32", "bf16")),
    _Rule("compile", "Compiled, fewer kernels move less.", _set("compute.compile", False, True)),
    _Rule(
        "keep_activations",
        "Nothing is computed twice, where memory has room for all activations.",
        _set("compute.activation_checkpointing", True, False),
    ),
    _Rule("double_micro_batch", "The same step in half as many passes.", rules.double_micro_batch),
    _Rule(
        "fewer_saves",
        "Half as many checkpoints; a crash loses twice as many steps.",
        rules.sparser_checkpoints,
        "save",
    ),
    _Rule(
        "fewer_evaluations", "Half as many evaluations.", rules.sparser_evaluations, "evaluation"
    ),
)


def speed_of(workspace: Workspace, view: RunView | None, stated: StatedSpeed) -> DiagnosisAnswer:
    """How fast a run is, or the training that was stated, or a run with what was stated of it.

    Raises:
        UsageError: `BAD_ARGUMENT`, what is stated is not enough.
        PlanError: `GPU_NOT_FOUND`, with the nearest names.
    """
    if view is None:
        return DiagnosisAnswer(findings=[], speed=_stated(stated, None, {}))
    config, shares = newest_config(workspace, view), _shares(workspace, view)
    if stated.names_a_model or stated.tokens_per_s is not None:
        if framework_of(view.run.config.framework).is_patched and not view.run.is_attached:
            raise UsageError(
                "BAD_ARGUMENT",
                f"The model, the GPUs and the speed of {view.run.run_id} are on record.",
                f"Leave them out: {command('diagnose', view.run.run_id, '--speed')}.",
                field="params",
            )
        return DiagnosisAnswer(
            run_id=view.run.run_id,
            findings=[],
            speed=_stated(stated, _tokens_per_s(view), shares),
        )
    base = _plan(view, ())
    mfu, expected = _mfu(view), None if base is None else base.plan.estimates.mfu
    changes = list(_changes(view, config, shares, base))
    profile = newest_profile(view)
    noticed = [] if profile is None else bottlenecks(profile, config)
    helping = [name for bottleneck in noticed for name in bottleneck.changes]
    changes.sort(key=lambda change: change.id not in helping)
    report = SpeedReport(
        tokens_per_s=_tokens_per_s(view),
        mfu=mfu,
        expected_mfu=None if mfu is None or expected is None else _range(expected),
        verdict=_verdict(mfu, expected),
        shares=shares,
        changes=changes,
        profile=None if profile is None else profile_report(view, profile, noticed),
        notes=[*_notes(view, shares)] or None,
    )
    return DiagnosisAnswer(
        run_id=view.run.run_id, findings=[], speed=report, next_step=_next(view, changes)
    )


def speed_changes(workspace: Workspace, view: RunView) -> list[SpeedChange]:
    """The changes that `resume --apply speed:ID` may make."""
    config = newest_config(workspace, view)
    return list(_changes(view, config, _shares(workspace, view), _plan(view, ())))


def _stated(stated: StatedSpeed, measured: float | None, shares: dict[str, float]) -> SpeedReport:
    tokens_per_s = measured if stated.tokens_per_s is None else stated.tokens_per_s
    parameters = None if stated.parameters is None else count_of(stated.parameters)
    if not parameters:
        raise _not_stated("params", stated.parameters)
    if stated.gpus is None:
        raise _not_stated("gpus", None)
    if tokens_per_s is None or not 0 < tokens_per_s < math.inf:
        raise _not_stated("tokens_per_s", tokens_per_s)
    destination = destination_of(stated.gpus, field="gpus")
    gpu, count = find_gpu(destination.gpu), destination.gpus * destination.nodes
    assert gpu is not None, "destination_of names GPUs of the table alone"
    reach = reach_of(parameters, gpu, count, compiled=stated.compiled)
    mfu = tokens_per_s * reach.flops_per_token / (gpu.peak_flops * count)
    if mfu > 1:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{number_text(tokens_per_s)} tokens/s of {stated.parameters} parameters are "
            f"{number_text(rounded(mfu, 2))} times what {destination.on} computes at its peak.",
            "State the tokens/s of all GPUs together, how many there are, and of a mixture of "
            "experts the active parameters.",
            field="tokens_per_s",
        )
    is_compiled = "compiled" if stated.compiled else "not compiled"
    if count > 1 and not shares:
        shares = {"communication": rounded(reach.exchange_share, 3)}
    return SpeedReport(
        tokens_per_s=rounded(tokens_per_s, 4),
        mfu=rounded(mfu, 3),
        expected_mfu=_range(reach.mfu),
        verdict=_verdict(mfu, reach.mfu),
        shares=shares,
        changes=list(_stated_changes(reach, mfu)),
        notes=[
            f"Counted as {reach.like} is built, with {reach.seq_len:,} tokens a sequence, in half "
            f"precision, {is_compiled}, {reach.strategy}; communication is modelled."
        ],
    )


def _not_stated(name: str, value: object) -> UsageError:
    """That a part of a stated speed is lacking, or is not a number above 0."""
    example = command(
        "diagnose",
        "--speed",
        "--params",
        "7B",
        "--gpus",
        "a100:8",
        "--tokens-per-s",
        "25000",
        in_shell=True,
    )
    lacks = "A stated speed needs parameters, GPUs and, without a run that reports it, tokens/s"
    what = f"{lacks}; `{name}` is missing" if value is None else f"`{name}` is {value}"
    return UsageError("BAD_ARGUMENT", f"{what}.", f"For example {example}.", field=name)


def _stated_changes(reach: Reach, mfu: float) -> Iterator[SpeedChange]:
    """None for a training that is faster than expected: with them it would be faster than a plan
    with them is."""
    if mfu > _range(reach.mfu)[1]:
        return
    words = {
        "compute.compile": ("compile", True),
        "batch.micro_batch": ("double_micro_batch", None),
    }
    whys = {rule.id: rule.why for rule in _RULES}
    for path, gain in sorted(reach.gains.items(), key=lambda item: -item[1]):
        name, value = words[path]
        if gain >= _LEAST_GAIN:
            sets = {} if value is None else {path: value}
            yield _change(name, whys[name], sets, {}, gain=gain, memory_gib=None)


def _changes(
    view: RunView, config: Config, shares: Mapping[str, float], base: Planned | None
) -> Iterator[SpeedChange]:
    if view.run.is_attached or not framework_of(config.get("framework")).is_patched:
        return
    options = []
    for rule in _RULES:
        sets = rule.changes(config)
        planned = _plan(view, _sets_of(sets)) if sets and base is not None else None
        if planned is None:
            continue  # nothing to change, not possible or no room for it
        if rule.cause is None:
            gain = _gain(base, planned)
        else:
            gain = 1 / (1 - shares.get(rule.cause, 0.0) / 2)
        if gain is not None and gain >= _LEAST_GAIN:
            expected = {path: value_at(config, path) for path in sets}
            memory_gib = planned.plan.estimates.memory_gib
            options.append(
                _change(rule.id, rule.why, sets, expected, gain=gain, memory_gib=memory_gib)
            )
    yield from sorted(options, key=lambda option: -option.gain)


def _change(
    name: str,
    why: str,
    sets: Mapping[str, Any],
    expected: Mapping[str, Any],
    *,
    gain: float,
    memory_gib: float | None,
) -> SpeedChange:
    return SpeedChange.model_validate(
        {
            "id": name,
            "set": dict(sets),
            "expected": dict(expected),
            "from": "latest",
            "keeps_batch": True,
            "why": why,
            "gain": rounded(gain, 3),
            "memory_gib": memory_gib,
        }
    )


def _sets_of(sets: Mapping[str, Any]) -> list[str]:
    """As `--set` takes them: what a spec lacks follows from the others."""
    resolved = ("batch.accumulation", "checkpoint.every_is_auto")
    return [f"{path}={json.dumps(value)}" for path, value in sets.items() if path not in resolved]


def _plan(view: RunView, sets: list[str] | tuple[()]) -> Planned | None:
    """The run's plan with these values, on its host; None where there is none."""
    made = view.run.plan
    if view.run.is_attached or "facts" not in made:
        return None
    unmeasured = Calibration().model_dump(mode="json")
    try:
        return plan_again(view.run.spec, sets, {**made, "calibration": unmeasured})
    except TrainmasterError:
        return None


def _gain(base: Planned | None, planned: Planned) -> float | None:
    if base is None:
        return None
    old, new = base.plan.estimates.tokens_per_s, planned.plan.estimates.tokens_per_s
    return None if not old or not new else new / old


def _tokens_per_s(view: RunView) -> float | None:
    progress = view.progress
    if progress is None:
        return None
    tokens = number(progress.described.get("tokens_per_step"))
    if tokens is not None and progress.step_time_s:
        return rounded(tokens / progress.step_time_s, 4)
    return number(progress.last.get("tokens_per_s"))


def _mfu(view: RunView) -> float | None:
    progress, speed = view.progress, _tokens_per_s(view)
    if progress is None:
        return None
    peak = number(progress.described.get("peak_flops"))
    flops = view.run.config.derived.flops_per_token
    if peak and flops and speed is not None:
        return rounded(speed * flops / peak, 3)
    return number(progress.last.get("mfu"))


def _shares(workspace: Workspace, view: RunView) -> dict[str, float]:
    """What the time between steps went to, and within them waiting for data, as shares of the time
    in which the trainer ran."""
    reckoning = reckoning_of(view)
    seconds = {part.cause: reckoning.seconds(part.cause) for part in reckoning.parts}
    running_s = sum(s for cause, s in seconds.items() if cause not in _NOT_RUNNING)
    if running_s <= 0:
        return {}
    shares = {
        cause: rounded(s / running_s, 3)
        for cause, s in seconds.items()
        if cause not in _NOT_RUNNING and s >= 0.001 * running_s
    }
    waited = [share for _, share in run_points(workspace, view, "data_time_share")]
    if waited:
        shares["data"] = rounded(shares.get(TRAINING, 0.0) * sum(waited) / len(waited), 3)
        shares[TRAINING] = rounded(shares.get(TRAINING, 0.0) - shares["data"], 3)
    busy = number(view.record.telemetry.get("gpu_util"))
    if busy is not None:
        shares["gpu_not_busy"] = rounded(1 - busy / 100, 3)
    return shares


def _range(mfu: float) -> list[float]:
    return [rounded(mfu * (1 - SPREAD_MODELLED), 3), rounded(mfu * (1 + SPREAD_MODELLED), 3)]


def _verdict(mfu: float | None, expected: float | None) -> str:
    if mfu is None or expected is None:
        return _CPU
    low, high = _range(expected)
    reached = f"MFU is {share_text(mfu, 1)}; this set-up is expected to reach "
    reached += f"{share_text(low)} to {share_text(high)}"
    if mfu < _FAR_BELOW * expected:
        return f"{reached}: {share_text(1 - mfu / expected)} slower than expected. {_ELSEWHERE}"
    if mfu < low:
        return f"{reached}: {share_text(1 - mfu / expected)} slower than expected."
    return f"{reached}, so it is as fast as can be expected." if mfu <= high else f"{reached}."


def _notes(view: RunView, shares: Mapping[str, float]) -> Iterator[str]:
    if shares.get("data", 0.0) > _MUCH_DATA:
        yield (
            f"Steps wait for data {share_text(shares['data'])} of the time: prepared shards "
            "(data.prepare), which a new run takes, are read faster than a stream."
        )
    if view.run.config.compute.processes > 1:
        yield "Communication isn't recorded."
    if view.run.is_attached:
        stating = command(
            "diagnose",
            view.run.run_id,
            "--speed",
            "--params",
            "7B",
            "--gpus",
            "a100:8",
            in_shell=True,
        )
        yield f"State the model and the GPUs to judge it, as in {stating}."
    elif not framework_of(view.run.config.framework).is_patched:
        yield "Its settings are the program's own, so that no patch changes them."
    elif not view.ended and newest_profile(view) is None:
        profile = command("diagnose", view.run.run_id, "--speed", "--profile")
        yield f"What a step's time goes to: {profile}, which slows some ten steps."


def _next(view: RunView, changes: list[SpeedChange]) -> str | None:
    if not changes:
        return None
    resume = command("resume", view.run.run_id, "--apply", f"{SPEED}:{changes[0].id}")
    return resume if view.ended else f"{command('stop', view.run.run_id)}, then {resume}"
