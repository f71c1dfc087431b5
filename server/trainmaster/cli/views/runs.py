"""What people see of what is done with a run, and of what it has left."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.checkpoints.checkpoint_index import kept_until
from trainer_runtime.core.protocol.figures import number_text, size_text
from trainmaster.answers.runs import (
    ArrayAnswer,
    CheckpointsAnswer,
    CleanAnswer,
    FetchAnswer,
    LaunchAnswer,
    LogAnswer,
    SkippedCheckpoint,
    StopAnswer,
    TransferAnswer,
    WaitAnswer,
    removed_words,
)
from trainmaster.cli.views.blocks import Block, Grid, named, pairs, view


@view.register
def _(answer: LaunchAnswer) -> list[Block]:
    reason = f" ({answer.reason})" if answer.reason else ""
    return [
        *([answer.name_taken] if answer.name_taken else []),
        f"{answer.run_id}: {answer.state}{reason}, attempt {answer.attempt} on {answer.host}",
        *named("The next session begins at", answer.resumes_at),
        *(["The host could not be reached yet; delivery is pending."] * bool(answer.pending)),
        *named("Applied", answer.applied),
        *_superseded(answer.superseded or ()),
        *(f"Warning: {warning}" for warning in answer.warnings or ()),
        *named("Note", answer.note),
        *named("Next", answer.next_step),
    ]


@view.register
def _(answer: ArrayAnswer) -> list[Block]:
    rows = [(run.run_id, run.state, pairs(run.labels)) for run in answer.runs]
    return [
        f"{answer.array}: {len(rows)} runs on {answer.host}",
        Grid(("run", "state", "labels"), rows),
        *(f"Warning: {warning}" for warning in answer.warnings or ()),
        *named("Next", answer.next_step),
    ]


def _skipped(item: SkippedCheckpoint) -> str:
    text = f"Skipped: step {number_text(item.step)}, {item.reason}"
    return text if item.untrusted_detail is None else f"{text}: {item.untrusted_detail}"


def _superseded(steps: Sequence[int]) -> list[str]:
    return [f"Superseded checkpoints: {kept_until(steps)}"] if steps else []


@view.register
def _(answer: LogAnswer) -> list[Block]:
    return list(answer.lines)


@view.register
def _(answer: WaitAnswer) -> list[Block]:
    state = "" if answer.state in (None, answer.event) else f"; {answer.state}"
    at = "" if answer.step is None else f" at step {number_text(answer.step)}"
    run = "" if answer.run_id is None else f"{answer.run_id}: "
    left = "" if answer.still_open is None else f" ({answer.still_open} still open)"
    return [
        f"{run}{answer.event}{state}{at}{left}",
        *([f"- {number_text(answer.omitted)} others left out"] if answer.omitted else []),
        *(
            f"- {'' if change.run_id is None else f'{change.run_id}: '}{change.event}"
            + ("" if change.step is None else f" at step {number_text(change.step)}")
            + "".join(
                f": {said}"
                for said in (change.detail, change.untrusted_detail)
                if said and said != change.event
            )
            for change in answer.changes
        ),
        *named("Not reached", answer.unreachable),
        f"Next: {answer.next_step}",
    ]


@view.register
def _(answer: CheckpointsAnswer) -> list[Block]:
    rows = [
        (
            number_text(row.step),
            size_text(row.size_bytes),
            pairs(row.metrics),
            " ".join(row.tags),
            {True: "verified", False: "damaged", None: "not checked"}[row.verified],
        )
        for row in answer.checkpoints
    ]
    if answer.not_ours:
        took = "As its log reports. Only the training's owner can verify and resume them."
    elif answer.resume_from is None:
        took = "A resume would start from scratch."
    else:
        took = f"A resume would start from step {number_text(answer.resume_from)}."
    return [
        Grid(("step", "size", "metrics", "tags", "integrity"), rows),
        *(_skipped(item) for item in answer.skipped),
        *_superseded([row.step for row in answer.superseded or ()]),
        took,
        *named("Not reached", answer.unreachable),
    ]


@view.register
def _(answer: StopAnswer) -> list[Block]:
    pending = "; the host has not been reached yet" if answer.pending else ""
    return [f"{answer.run_id}: {answer.state}{pending}", f"Next: {answer.next_step}"]


@view.register
def _(answer: CleanAnswer) -> list[Block]:
    verb = "Would remove" if answer.dry_run else "Removed"
    freed = "" if answer.dry_run else f"; {size_text(answer.freed_bytes)} freed"
    kept = f"; kept: {len(answer.kept)}" if answer.kept else ""
    return [
        f"{answer.run_id} on {answer.host}: {verb.lower()} {removed_words(answer.removed)}{freed}"
        f"{kept}",
        *(f"{verb}: {path}" for path in answer.removed),
        *(f"Kept: {path}" for path in answer.kept),
        *named("Note", answer.note),
    ]


@view.register
def _(answer: FetchAnswer) -> list[Block]:
    what = ", ".join(answer.brought or ("nothing",))
    what = "" if what == "." else f"{what}: "
    rest = "; the rest is still to come" if answer.more else ""
    files = "1 file" if answer.files == 1 else f"{number_text(answer.files)} files"
    return [
        f"{what}{files}, {size_text(answer.bytes)}, in {answer.folder}{rest}",
        *named("Form", answer.form),
        *(f"Left out: {item.path}: {item.reason}" for item in answer.skipped),
        *named("Next", answer.next_step),
    ]


@view.register
def _(answer: TransferAnswer) -> list[Block]:
    return [f"{answer.run_id}: {', '.join(answer.done) or 'nothing to transfer'}"]
