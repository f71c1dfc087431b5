"""Plays a case, and says what was wrong."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from support.evals.cases import Case
from support.evals.session import Session, opened, same
from support.evals.situations import RUN, SITUATIONS, Place
from support.session.leftovers import end_processes_of, end_supervisors_of

Agent = Callable[[Session, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`problems`: what did not hold, in words; none for a case that passed."""

    case: Case
    calls: tuple[str, ...]
    tokens: int
    wakes: int
    problems: tuple[str, ...]


def play(case: Case, agent: Agent, folder: Path, *, over_stdio: bool = False) -> Verdict:
    """Plant the situation in a new home below `folder`, let the agent work, and judge."""
    place = Place(folder / "home", folder / "work")
    before = dict(os.environ)
    os.environ["TRAINMASTER_HOME"] = str(place.home)
    try:
        with chdir(place.folder):
            SITUATIONS[case.situation](place)
            session = anyio.run(_worked, case, agent, place, over_stdio)
            return _verdict(case, session, place)
    finally:
        os.environ.clear()
        os.environ.update(before)
        end_supervisors_of(place.home / "debug")
        end_processes_of(folder)
        if place.site is not None:
            for instance in place.site.alive:
                instance.end()
            place.site.close()


async def _worked(case: Case, agent: Agent, place: Place, over_stdio: bool) -> Session:
    async with opened(place, case.says, over_stdio=over_stdio) as session:
        await agent(session, case.prompt)
        return session


def _verdict(case: Case, session: Session, place: Place) -> Verdict:
    called = tuple(name for name, _ in session.calls)
    problems = [
        *(f"{name} was not called" for name in case.must if name not in called),
        *(f"{name} was called" for name in case.never if name in called),
        *([f"{len(called)} calls, more than {case.most}"] if len(called) > case.most else []),
        *_repeated(session),
        *_differing(case, place),
    ]
    return Verdict(case, called, session.tokens, session.wakes, tuple(problems))


def _repeated(session: Session) -> Iterator[str]:
    """Nothing is asked twice."""
    made = [same(call) for call in session.calls]
    for number, call in enumerate(made):
        if call in made[:number]:
            yield f"{call[0]} was called twice with the same arguments"


def _differing(case: Case, place: Place) -> Iterator[str]:
    """What `end` says that is not so: `state`, `attempts` and `step` of the run `gpt`, `runs` their
    number, `created` the instances created at the provider, `brought` a file below the home."""
    facts = dict(_facts(case, place))
    for name, wanted in case.end.items():
        if facts[name] != wanted:
            yield f"{name} is {facts[name]!r}, not {wanted!r}"


def _facts(case: Case, place: Place) -> Iterator[tuple[str, Any]]:
    runs = place.command("runs")["runs"]
    yield "runs", len(runs)
    ours = next((run for run in runs if run["name"] == RUN), None)
    if ours is not None:
        if case.end.get("state") in ("completed", "stopped"):
            place.until_end(ours["run_id"])
        status = place.command("status", ours["run_id"], "--detail")
        yield "state", status["state"]
        yield "attempts", status["attempt"]
        yield "cleaned", not Path(status.get("folder", "/")).is_dir()
    yield "created", 0 if place.site is None else place.site.count("create")
    yield "alerts", len(place.command("alerts", "list")["alerts"]) if ours else 0
