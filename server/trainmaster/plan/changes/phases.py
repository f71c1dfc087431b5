"""What a resume may change of a curriculum: what has not begun."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainer_runtime.core.config import ConfigChanges, ConfigDocument, RunConfig
from trainer_runtime.core.config.curriculum import Curriculum, Phase
from trainer_runtime.core.policy.patch import apply_sets
from trainmaster.errors.errors import SpecError

# Of a phase that is being trained: how it ends is still open.
_OPEN = ("steps", "tokens", "success", "on_miss")
_NOT_SHARDS = ("dataset", "stream")


def total_steps(newest: ConfigDocument, changed: ConfigChanges) -> dict[str, int]:
    """`steps` as the phases sum to, with what the host has extended; empty where none changes."""
    if "phases" not in newest or not any(path.startswith("phases") for path in changed):
        return {}
    kept = {path: value for path, value in changed.items() if path.partition(".")[0] == "phases"}
    return {"steps": sum(phase["steps"] for phase in apply_sets(newest, kept)["phases"])}


def refuse_past(
    newest: ConfigDocument, changed: ConfigChanges, sets: Sequence[str], begins: int
) -> None:
    """Check that a resume behind step `begins` leaves what was trained as it was.

    Raises:
        SpecError: `INVALID_VALUE`, a phase that has begun would change, or a mix that can't.
    """
    names = [*changed, *(item.partition("=")[0].strip() for item in sets)]
    _refuse_mix(newest, names)
    touched = [path for path in names if path.startswith("phases")]
    if not touched:
        return
    if "phases" not in newest:
        raise _fixed("phases", "can't be given to a run that was launched without phases")
    before = Curriculum.of(RunConfig.parse(newest))
    for phase in before.phases:
        if phase.begins < begins:
            _refuse_touched(phase, touched, begins)
    if "phases" in changed:
        _refuse_reordered(before, RunConfig.parse(apply_sets(newest, changed)), begins)
    elif changed.get("steps", begins + 1) <= begins:
        raise _fixed("phases", f"would end before step {begins}, which is trained")


def _refuse_touched(phase: Phase, touched: Iterable[str], begins: int) -> None:
    has_ended = phase.ends <= begins
    for path in touched:
        field = path.removeprefix(f"phases.{phase.name}.")
        if field in (path, "sequences"):  # which follows from the number of ranks
            continue
        if has_ended:
            raise _fixed(path, f"is of phase {phase.name}, which ended after step {phase.ends}")
        if field.partition(".")[0] not in _OPEN:
            raise _fixed(path, f"is of phase {phase.name}, which began after step {phase.begins}")


def _refuse_reordered(before: Curriculum, after: RunConfig, begins: int) -> None:
    begun = [phase.config for phase in before.phases if phase.begins < begins]
    for was, now in zip(begun, after.phases, strict=False):
        if was.name != now.name or (was is not begun[-1] and was.steps != now.steps):
            raise _fixed(f"phases.{was.name}", "has begun")


def _refuse_mix(newest: ConfigDocument, names: Iterable[str]) -> None:
    form = RunConfig.parse(newest).data.form
    path = next((name for name in names if name.startswith("data.sources")), None)
    if path is not None and form in _NOT_SHARDS:
        raise _fixed(path, "is of rows that were mixed before the training began")


def _fixed(path: str, what: str) -> SpecError:
    return SpecError(
        "INVALID_VALUE",
        f"`{path}` {what}.",
        "Change phases that have not begun, of the present one its steps, success and on_miss; "
        "or launch a new run.",
        field=path,
    )
