"""What a profile says in an answer: its figures, and where the time that can be saved goes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.diagnosis.remedies import value_at
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import number_text, share_text, size_text
from trainer_runtime.core.protocol.profile import LARGEST_TRACE_BYTES, TRACE, Profile
from trainmaster.answers.diagnosis import OperatorShare, ProfileReport
from trainmaster.sync.run_view import RunView

_MOST_OPERATORS = 8
# Names come from the trainer: without spaces they are no sentences.
_ODD = re.compile(r"[^\w:.#<>,()~*&/-]")
_LONGEST_NAME = 80
_PHASES = ("data", "forward", "backward", "optimizer", "other")
_ON_HOST, _ON_GPU = (*_PHASES, "outside"), (*_PHASES, "copies", "communication", "idle")
_MUCH_DATA, _MUCH_IDLE, _MUCH_OUTSIDE = 0.1, 0.15, 0.3
_MUCH_COMMUNICATION, _MUCH_COPIED = 0.15, 0.1
_MUCH_OPTIMIZER, _MUCH_ATTENTION = 0.2, 0.2
# A launch takes some 5 to 10 microseconds of the host.
_SHORT_KERNEL_US = 15.0
_FEWER_LAUNCHES = ("compile", "double_micro_batch")


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What takes `share` of the steps' time, and the changes (`SpeedChange.id`) that are for it."""

    share: float
    text: str
    changes: tuple[str, ...] = ()


def bottlenecks(profile: Profile, config: Mapping[str, Any]) -> list[Bottleneck]:
    """What could be saved of a step's time, the most first."""
    noticed = [*_on_host(profile), *_on_gpu(profile), *_in_operators(profile, config)]
    return sorted(noticed, key=lambda one: -one.share)


def profile_report(view: RunView, profile: Profile, noticed: list[Bottleneck]) -> ProfileReport:
    """The profile of a run's newest attempt, as it is answered."""
    kernels = profile.kernels
    return ProfileReport(
        step=profile.step,
        steps=profile.steps,
        step_ms=profile.step_ms,
        usual_step_ms=profile.usual_step_ms,
        added_s=profile.added_s,
        host=_known(profile.host, _ON_HOST),
        gpu=_known(profile.gpu, _ON_GPU) or None,
        operators=[
            OperatorShare(
                name=_ODD.sub("_", one.name)[:_LONGEST_NAME],
                share=one.share,
                step_ms=one.step_ms,
                calls=one.calls,
            )
            for one in profile.operators[:_MOST_OPERATORS]
        ],
        attention=profile.attention,
        kernels_per_step=None if kernels is None else kernels.per_step,
        kernel_us=None if kernels is None else kernels.median_us,
        gap_us=None if kernels is None else kernels.median_gap_us,
        peak_memory_gib=profile.peak_memory_gib,
        advice=[one.text for one in noticed] or [_computes(profile)],
        trace=_trace(view, profile),
    )


def _on_host(profile: Profile) -> Iterator[Bottleneck]:
    data, outside = profile.host.get("data", 0.0), profile.host.get("outside", 0.0)
    if data >= _MUCH_DATA:
        most = number_text(1 / max(0.01, 1 - data), 3)
        yield Bottleneck(
            data,
            f"Steps wait for data {share_text(data)} of their time: prepared shards "
            f"(data.prepare), which a new run takes, make it up to {most} times as fast.",
        )
    if not profile.gpu and outside >= _MUCH_OUTSIDE:
        yield Bottleneck(
            outside,
            f"{share_text(outside)} of a step is in no operator, so in Python between them: "
            "fewer and larger ones, by compute.compile or a larger batch.micro_batch.",
            _FEWER_LAUNCHES,
        )


def _on_gpu(profile: Profile) -> Iterator[Bottleneck]:
    gpu, kernels, data = profile.gpu, profile.kernels, profile.host.get("data", 0.0)
    idle = gpu.get("idle", 0.0) - data
    if idle >= _MUCH_IDLE and kernels is not None:
        if kernels.median_us <= _SHORT_KERNEL_US:
            text = (
                f"The GPU idles {share_text(idle)} of a step between "
                f"{number_text(kernels.per_step)} kernels, half of them under "
                f"{number_text(kernels.median_us, 3)} µs, which the host can't launch faster: "
                "compute.compile joins them, a larger batch.micro_batch makes them longer."
            )
            yield Bottleneck(idle, text, _FEWER_LAUNCHES)
        else:
            yield Bottleneck(
                idle,
                f"The GPU idles {share_text(idle)} of a step though its kernels are long: the host "
                "holds it up, by reading values of the GPU or by work of its own.",
            )
    communication, copies = gpu.get("communication", 0.0), gpu.get("copies", 0.0)
    if communication >= _MUCH_COMMUNICATION:
        yield Bottleneck(
            communication,
            f"Exchange between ranks takes {share_text(communication)} of a step: a larger "
            "batch.tokens exchanges less often; a strategy that parts less exchanges less.",
            ("double_micro_batch",),
        )
    if copies >= _MUCH_COPIED:
        yield Bottleneck(
            copies,
            f"Copies take {share_text(copies)} of a step: offloading, or tensors moved each step.",
        )


def _in_operators(profile: Profile, config: Mapping[str, Any]) -> Iterator[Bottleneck]:
    where = profile.gpu or profile.host
    optimizer = where.get("optimizer", 0.0)
    if optimizer >= _MUCH_OPTIMIZER:
        yield Bottleneck(
            optimizer,
            f"The optimizer takes {share_text(optimizer)} of a step: a larger batch.tokens has "
            "fewer of its steps, and trains otherwise.",
        )
    if profile.attention >= _MUCH_ATTENTION and value_at(config, "model.attention") == "eager":
        computing = sum(where.get(phase, 0.0) for phase in ("forward", "backward"))
        yield Bottleneck(
            profile.attention * computing,
            f"Eager attention takes {share_text(profile.attention)} of the operators' time: "
            "`model.attention: sdpa`, which a new run takes, computes it in fused kernels.",
        )


def _computes(profile: Profile) -> str:
    first = profile.operators[0] if profile.operators else None
    most = "" if first is None else f": most in {_ODD.sub('_', first.name)[:_LONGEST_NAME]}"
    share = "" if first is None else f", {share_text(first.share)}"
    return f"Nothing stands out: the time goes to computing{most}{share}."


def _known(shares: Mapping[str, float], names: tuple[str, ...]) -> dict[str, float]:
    return {name: shares[name] for name in names if name in shares}


def _trace(view: RunView, profile: Profile) -> str | None:
    """How the trace is fetched, or why there is none; None where none was asked for."""
    size_bytes = profile.trace_bytes
    if profile.trace:
        attempt = view.attempt if view.progress is None else view.progress.attempt
        return command("fetch", view.run.run_id, f"attempts/{attempt}/{TRACE}", "FOLDER")
    if size_bytes is None:
        return None
    if size_bytes > LARGEST_TRACE_BYTES:
        most = size_text(LARGEST_TRACE_BYTES)
        return f"not kept: it has {size_text(size_bytes)}, more than {most}"
    return "not kept: it could not be written"
