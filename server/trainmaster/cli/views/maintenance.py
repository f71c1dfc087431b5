"""What people see of what keeps Trainmaster well: the keeper, ticks, the doctor, replays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainer_runtime.core.protocol.figures import number_text, spoken_duration
from trainmaster.answers.checks import CheckRow
from trainmaster.answers.hosts import DoctorAnswer
from trainmaster.answers.keeper import KeeperAnswer, TickAnswer
from trainmaster.answers.runs import ReplayAnswer
from trainmaster.cli.views.blocks import Block, Grid, view
from trainmaster.cli.views.hosts import check_grid


@view.register
def _(answer: KeeperAnswer) -> list[Block]:
    return [
        _headline(answer),
        *_written(answer),
        *(f"Removed: {place}" for place in answer.removed or ()),
        *([f"Last tick: {answer.last_tick_at}, {answer.last_tick}"] * bool(answer.last_tick)),
        *(f"Failed: {name}: {why}" for name, why in (answer.failed or {}).items()),
        *_missing_keys(answer),
        *(f"Hint: {hint}" for hint in answer.hints or ()),
        *([f"Next: {answer.next_step}"] if answer.next_step else []),
    ]


@view.register
def _(answer: DoctorAnswer) -> list[Block]:
    return [
        f"Trainmaster {answer.version}, home {answer.home}",
        *_verdict(answer.checks),
        check_grid(answer.checks),
        *([answer.not_checked] if answer.not_checked else []),
        f"Next: {answer.next_step}",
    ]


@view.register
def _(answer: TickAnswer) -> list[Block]:
    failed = [f"Failed: {name}: {why}" for name, why in (answer.failed or {}).items()]
    if answer.note is not None:
        return [answer.note, *failed]
    runs = [(row.run_id, row.state, ", ".join(row.did)) for row in answer.runs]
    instances = [(row.instance, ", ".join(row.did)) for row in answer.instances or ()]
    grids: list[Block] = [Grid(("run", "state", "did"), runs)] if runs else []
    grids += [Grid(("instance", "did"), instances)] if instances else []
    return [*grids, *failed] or ["Nothing is due."]


@view.register
def _(answer: ReplayAnswer) -> list[Block]:
    points, runs = number_text(answer.points), number_text(answer.runs)
    return [
        f"Read {points} points of {runs} runs again in {spoken_duration(answer.seconds)}.",
        *(f"Quarantined again: {run}" for run in answer.quarantined or ()),
    ]


def _verdict(checks: Sequence[CheckRow]) -> Iterable[Block]:
    """How many checks passed, and the names of those that didn't."""
    states = ("ok", "fail", "warn")
    by_state = {state: [row.name for row in checks if row.state == state] for state in states}
    needed = f"Missing: {', '.join(by_state['fail'])}" if by_state["fail"] else "Nothing is missing"
    yield f"{needed}; {len(by_state['ok'])} of {len(checks)} checks passed."
    if by_state["warn"]:
        yield f"Trainings run without, or less well: {', '.join(by_state['warn'])}."


def _headline(answer: KeeperAnswer) -> str:
    if not answer.installed:
        return f"No keeper of {answer.home} is installed."
    overdue = "; it is overdue" if answer.overdue else ""
    return f"{answer.by} calls the keeper of {answer.home} every {answer.every}{overdue}."


def _written(answer: KeeperAnswer) -> Iterable[Block]:
    for place, text in (answer.wrote or {}).items():
        yield f"{place}:"
        yield from (f"  {line}" for line in text.splitlines())


def _missing_keys(answer: KeeperAnswer) -> Iterable[Block]:
    if answer.put_into_secrets_env:
        names = ", ".join(answer.put_into_secrets_env)
        yield f"A timer has no variables of your shell: put into {answer.home}/secrets.env {names}"
