"""`sample`: text from a run's model, by a bounded process where its checkpoint is."""

from __future__ import annotations

from dataclasses import replace

from trainer_runtime.core.answers.averaged import FOLDER
from trainer_runtime.core.answers.sampled import (
    LONGEST_PROMPT,
    MOST_TEXTS,
    MOST_TOKENS,
    SampledText,
    SampleRequest,
)
from trainer_runtime.core.frameworks import framework_of
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.text import cleaned
from trainmaster.answers.samples import SamplesAnswer
from trainmaster.answers.status import Sample
from trainmaster.backends import TextSampler
from trainmaster.calls.stages import enter_stage
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.runs.model_access import (
    allow_model,
    mask_of,
    masked_errors,
    refuse_without_weights,
)
from trainmaster.runs.status.newest_samples import ended_of, of_training
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_MOST_RECORDED = 40
_RECORDING = "`eval.samples` of a spec has texts recorded during the training."
_SECONDS = (5.0, 600.0)


async def sample_run(
    workspace: Workspace,
    run: str,
    request: SampleRequest,
    *,
    confirm: Confirm | None = None,
) -> SamplesAnswer:
    """What the model of a run writes after the prompt. `request.start`: as `trainmaster sample
    --from` has it, with `best` besides.

    The process runs on the run's host in the training's environment, reads safetensors and the
    tensors of pickles alone, and ends with the call.

    Raises:
        StateError: `RUN_NOT_FOUND`, `NO_CHECKPOINT`, `RUN_ENDED` for one that was cleaned.
        UsageError: `BAD_ARGUMENT`, `UNSUPPORTED` for an attached training.
        HostError: `NOT_SAMPLED`, `UNSUPPORTED`; the host can't be reached.
        PolicyError, SpendError: what it runs is beyond the caller's policy.
    """
    _refuse_impossible(request)
    view = await refresh(workspace, run)
    refuse_without_weights(view)
    _refuse_chat(view, request)
    sampler = TextSampler.of(workspace.backend(view.run.host), run_id=view.run.run_id)
    await allow_model(workspace, view, "for text", confirm)
    enter_stage(f"running the model of {view.run.run_id}")
    asked = replace(request, start=_start(view, request.start))
    mask = mask_of(workspace, view)
    with masked_errors(mask):
        sampled = await sampler.sample(view.run.run_id, asked)
    return SamplesAnswer(
        run_id=view.run.run_id,
        step=sampled.step,
        path=cleaned(mask.text(sampled.path), 200),
        device=cleaned(mask.text(sampled.device), 20),
        samples=[_sample(mask.text(text.text), text) for text in sampled.texts[:MOST_TEXTS]],
    )


async def recorded_samples(workspace: Workspace, run: str) -> SamplesAnswer:
    """The texts that the training has recorded (`eval.samples` of the spec), the newest last.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    view = await refresh(workspace, run)
    recorded = [sample for _, sample in of_training(workspace, view)[-_MOST_RECORDED:]]
    asking = f"{command('sample', view.run.run_id, '--prompt', 'TEXT')} asks its model now."
    return SamplesAnswer(
        run_id=view.run.run_id,
        samples=recorded,
        next_step=asking if recorded else f"{asking} {_RECORDING}",
    )


def _sample(text: str, sampled: SampledText) -> Sample:
    return Sample(untrusted_text=text, tokens=sampled.tokens, ended=ended_of(sampled.ended))


def _start(view: RunView, start: str | None) -> str | None:
    steps_kept = [entry["step"] for entry in view.index.to_dict()["checkpoints"]]
    if _is_step(start) and int(str(start)) not in steps_kept:
        steps = ", ".join(map(str, steps_kept))
        raise StateError(
            "NO_CHECKPOINT",
            f"Run {view.run.run_id} has no checkpoint of step {start}.",
            f"Take one of {steps}, or final." if steps_kept else "Leave `--from` out.",
        )
    if start is None and not (view.progress and view.progress.completed):
        # `final` is of an earlier end, if it is there.
        return None if view.index.resume_from is None else "latest"
    if start == "ema" and view.run.config.checkpoint.ema is None:
        raise StateError(
            "NO_CHECKPOINT",
            f"Run {view.run.run_id} keeps no averaged weights.",
            "`checkpoint.ema` of a spec keeps them; leave `--from` out for the trained ones.",
        )
    if start != "best":
        return start
    if view.index.best is None:
        raise StateError(
            "NO_CHECKPOINT",
            f"Run {view.run.run_id} has no verified checkpoint with a validation loss.",
            "Leave `--from` out: the final model is taken, or the newest checkpoint.",
        )
    return str(view.index.best)


def _refuse_chat(view: RunView, request: SampleRequest) -> None:
    framework = str(view.run.document.get("framework"))
    if request.chat and not framework_of(framework).has_chat_template:
        raise _wrong("chat", f"Models of {framework} have no chat template", "Leave `chat` out")


def _refuse_impossible(request: SampleRequest) -> None:
    start = request.start
    if not (start in (None, "final", "latest", "best", "ema", FOLDER) or _is_step(start)):
        fix = f"Use final, best, latest, ema, {FOLDER} or a step"
        raise _wrong("from", f"{start!r} names no weights", fix)
    for name, value, most in (
        ("max_tokens", request.max_tokens, MOST_TOKENS),
        ("count", request.count, MOST_TEXTS),
    ):
        if not 1 <= value <= most:
            raise _wrong(name, f"`{name}` is {value}", f"Give 1 to {most:,}")
    if not 0 <= request.temperature <= 100:
        raise _wrong("temperature", f"`temperature` is {request.temperature}", "Give 0 to 100")
    if not 0 <= request.seed < 2**63:
        raise _wrong("seed", f"`seed` is {request.seed}", "Give a number from 0 on")
    if len(request.prompt) > LONGEST_PROMPT:
        fix = f"Give at most {LONGEST_PROMPT:,} characters"
        raise _wrong("prompt", f"The prompt has {len(request.prompt):,} characters", fix)
    least, most_s = _SECONDS
    if not least <= request.within_s <= most_s:
        raise _wrong(
            "timeout",
            "The time is out of bounds",
            f"Give {spoken_duration(least)} to {spoken_duration(most_s)}",
        )


def _is_step(start: str | None) -> bool:
    return start is not None and start.isascii() and start.isdigit() and len(start) < 16


def _wrong(field: str, message: str, fix: str) -> UsageError:
    return UsageError("BAD_ARGUMENT", f"{message}.", f"{fix}.", field=field)
