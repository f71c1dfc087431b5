"""What people see of a diagnosis."""

from __future__ import annotations

import json
from collections.abc import Iterable

from trainer_runtime.core.protocol.figures import gib_text, number_text, share_text, size_text
from trainmaster.answers.diagnosis import (
    ComparedRun,
    DiagnosisAnswer,
    FailureReport,
    FindingAnswer,
    PatchAnswer,
    ProfileReport,
    SpeedReport,
)
from trainmaster.cli.views.blocks import Block, view
from trainmaster.cli.views.metrics import drafted_words, understood
from trainmaster.metrics.log_pattern import TEACH


@view.register
def _(answer: DiagnosisAnswer) -> list[Block]:
    if answer.speed is not None:
        return [*_speed(answer.speed), *([f"Next: {answer.next_step}"] if answer.next_step else [])]
    blocks: list[Block] = []
    for finding in answer.findings:
        blocks += _finding(finding)
    if answer.read_bytes == 0:
        return ["The file is empty."]
    if answer.reason is not None:
        said = ": ".join(part for part in (answer.reason, answer.untrusted_detail) if part)
        blocks.append(f"Failed: {said}.")
        blocks += [f"  > {line}" for line in answer.evidence or ()]
    elif not answer.findings:
        blocks.append(_nothing_found(answer))
    if answer.past is not None:
        blocks.append(f"Findings: {answer.past} (--all shows them).")
    if answer.compared is not None:
        blocks += _compared(answer.compared)
    if answer.omitted is not None:
        blocks.append(f"{number_text(answer.omitted)} more, less pressing: --all shows them.")
    if answer.read_bytes is not None:
        blocks += _read(answer, answer.read_bytes)
    if answer.series_until_step is not None:
        blocks.append(f"Its series were read up to step {number_text(answer.series_until_step)}.")
    if answer.next_step is not None:
        blocks.append(f"Next: {answer.next_step}")
    return blocks


@view.register
def _(report: FailureReport) -> list[Block]:
    codes = ", ".join(report.findings) or "nothing"
    return [
        "Read it through before you file it: names in words of your own are not known here.",
        f"Trainmaster says: {codes}",
        *report.text.split("\n"),
    ]


def _speed(report: SpeedReport) -> Iterable[Block]:
    speed = report.tokens_per_s
    yield report.verdict + ("" if speed is None else f" {number_text(speed)} tokens/s.")
    if report.shares:
        most_first = sorted(report.shares.items(), key=lambda item: -item[1])
        shares = ", ".join(f"{name} {share_text(share, 1)}" for name, share in most_first)
        yield f"Time: {shares}"
    if report.profile is not None:
        yield from _profile(report.profile)
    for change in report.changes:
        memory = "" if change.memory_gib is None else f", {gib_text(change.memory_gib)}"
        yield f"{number_text(change.gain)} times as fast{memory}:"
        if change.expected:
            yield from _patch(change)
        else:  # of no run, whose fields are not known
            sets = ", ".join(f"{path}={json.dumps(new)}" for path, new in change.set.items())
            yield f"  {change.id}{f' ({sets})' if sets else ''}: {change.why}"
    if not report.changes:
        yield "No change is known that would make it faster."
    yield from report.notes or ()


def _profile(profile: ProfileReport) -> Iterable[Block]:
    usual = profile.usual_step_ms
    before = "" if usual is None else f", {number_text(usual)} ms without the profiler"
    yield (
        f"Profile of {profile.steps} steps from step {number_text(profile.step)}: "
        f"{number_text(profile.step_ms)} ms a step{before}; it took the training "
        f"{number_text(profile.added_s, 3)} s."
    )
    for place, shares in (("host", profile.host), ("GPU", profile.gpu)):
        if shares:
            parts = ", ".join(f"{name} {share_text(share, 1)}" for name, share in shares.items())
            yield f"  {place}: {parts}"
    if profile.kernels_per_step is not None:
        yield (
            f"  {number_text(profile.kernels_per_step)} kernels a step, "
            f"{number_text(profile.kernel_us)} µs and {number_text(profile.gap_us)} µs between "
            "them (medians)"
        )
    if profile.peak_memory_gib is not None:
        yield f"  memory: {gib_text(profile.peak_memory_gib)} at most"
    for one in profile.operators:
        yield (
            f"  {share_text(one.share, 1)} {one.name}: {number_text(one.step_ms)} ms a step, "
            f"calls: {number_text(one.calls)}"
        )
    yield from profile.advice
    if profile.trace is not None:
        yield f"Trace: {profile.trace}"


def _compared(good: ComparedRun) -> Iterable[Block]:
    if not good.differs:
        yield f"Settings, data, code and host are those of {good.run_id}, which completed."
        return
    yield f"Unlike {good.run_id}, which completed:"
    yield from (f"  {line}" for line in good.differs)
    if good.omitted is not None:
        yield f"  and {number_text(good.omitted)} more"


def _read(answer: DiagnosisAnswer, read_bytes: int) -> Iterable[Block]:
    """How much of a file was read, and what was understood of it."""
    share, coverage = answer.read_share, answer.understood
    part = "" if share is None else f", {share_text(share)} of the lines with numbers"
    yield f"Read {size_text(read_bytes)}{part}{'' if coverage is None else understood(coverage)}."
    if coverage is not None and coverage.untrusted_samples:
        yield "Not understood, for example:"
        yield from (f"  > {line}" for line in coverage.untrusted_samples)
        yield TEACH
        yield from drafted_words(coverage)


def _nothing_found(answer: DiagnosisAnswer) -> str:
    if answer.read_share == 0:
        return "No error is in it; of its numbers nothing was understood, so they were not judged."
    unseen = " ".join(answer.unseen or ())
    if answer.past is not None:
        return " ".join(filter(None, ("No finding is open.", unseen)))
    if unseen:
        return f"No failure was seen. {unseen}"
    return "Nothing is wrong as far as can be seen."


def _finding(finding: FindingAnswer) -> Iterable[Block]:
    step = "" if finding.step is None else f" at step {number_text(finding.step)}"
    attempt = "" if finding.attempt is None else f" in attempt {finding.attempt}"
    over = ", over" if finding.over else ""
    sure = f", {share_text(finding.confidence)} sure" if finding.confidence < 1 else ""
    yield f"{finding.severity.upper()} {finding.code}{step}{attempt} ({finding.id}{sure}{over})"
    yield f"  {finding.explanation}"
    yield from (f"  > {line}" for line in finding.evidence)
    yield from (f"  - {sentence}" for sentence in finding.advice)
    for patch in finding.patches:
        yield from _patch(patch)


def _patch(patch: PatchAnswer) -> Iterable[Block]:
    sets = ", ".join(
        f"{path}: {json.dumps(patch.expected.get(path))} -> {json.dumps(new)}"
        for path, new in patch.set.items()
    )
    start = f"from {patch.from_}" if isinstance(patch.from_, str) else f"from step {patch.from_}"
    skipped = (
        "" if patch.skip is None else f", without {number_text(patch.skip['sequences'])} sequences"
    )
    tried = " (was tried)" if patch.tried else ""
    yield f"  Patch {patch.id}{tried}: {'; '.join(filter(None, (sets, start + skipped)))}"
    yield f"    {patch.why}"
