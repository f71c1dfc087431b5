"""A host for the supervisor whose clock a test drives and whose trainers follow a script."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.core.journal_records import EventBody, lines

from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import decode, encode
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.processes.processes import Observation
from trainer_runtime.host.supervise.history import SNAPSHOT_EVERY
from trainer_runtime.host.supervise.supervisor import Supervisor
from trainer_runtime.host.watch.telemetry import Telemetry

CONFIG: dict[str, Any] = {
    "name": "small",
    "framework": "nanogpt",
    "steps": 100,
    "data": {"skip": []},
    "optimizer": {"lr": 0.001},
    "checkpoint": {"metric": "val_loss"},
    "recovery": {"max_restarts": 3, "on_crash": "resume", "on_nan": "rewind_skip_data"},
    "limits": {"max_runtime_s": None},
    "derived": {"sequences_per_step": 8},
}
_MOST_TICKS = 3000
_COMPLETE, _SAVED = Exit(0, None), Exit(75, None)


@dataclass(frozen=True)
class Life:
    """What one attempt's trainer does. `end` None: it runs until it is asked to end.

    `prepared` is the exit code of its preparation, None for one that never ends. `log` is what it
    printed.
    """

    events: Sequence[EventBody] = ()
    end: Exit | None = _COMPLETE
    prepared: int | None = 0
    on_sigterm: Exit | None = _SAVED
    setup_log: str = ""
    log: str = ""


@dataclass
class Box:
    """The machine: outlives its supervisors. `requests`: all of them, in order.

    `can_hear` is False while hold has no trainer yet that could hear a signal. `verdict` is what
    the stacks of a stalled trainer show. `snapshot_every`: after how many events a supervisor keeps
    what it has folded.
    """

    root: Path
    lives: Mapping[int, Life]
    now: float = 1_000.0
    started: list[int] = field(default_factory=list)
    ends: dict[int, Exit] = field(default_factory=dict)
    requests: list[tuple[str, int]] = field(default_factory=list)
    can_hear: bool = True
    verdict: Finding | None = None
    snapshot_every: int = SNAPSHOT_EVERY

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.root)

    def set_up(self, **changes: Any) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        config = {**CONFIG, "run_id": self.root.name, **changes}
        self.run.config.write_text(json.dumps(config))
        self.ask("running", 1)

    def ask(self, state: str, generation: int, **fields: Any) -> None:
        request = {"state": state, "generation": generation, **fields}
        self.run.desired.write_text(json.dumps(request))

    def supervisor(self) -> Supervisor:
        telemetry = Telemetry(self.root)
        return Supervisor(
            self.run,
            ScriptedProcesses(self),
            lambda: self.now,
            telemetry,
            window=False,
            inspect=lambda run, attempt, step: self.verdict,
            snapshot_every=self.snapshot_every,
        )

    def tick(self, supervisor: Supervisor, until: str) -> None:
        """Let a second pass at a time until the journal holds an event of this kind or state."""
        for _ in range(_MOST_TICKS):
            if any(until in (event["kind"], event.get("state")) for event in self.journal()):
                return
            supervisor.tick()
            self.now += 1.0
        raise AssertionError(f"{until} never came: {self.journal()[-5:]}")

    def to_the_end(self, supervisor: Supervisor | None = None) -> Record:
        """Let the time pass until the supervisor has nothing left to do."""
        supervisor = supervisor or self.supervisor()
        for _ in range(_MOST_TICKS):
            if supervisor.tick():
                supervisor.close()
                return self.record()
            self.now += 1.0
        raise AssertionError(f"no end: {self.journal()[-5:]}")

    def journal(self) -> list[dict[str, Any]]:
        return [dict(decode(line).document) for line in self.run.journal.read_bytes().splitlines()]

    def record(self) -> Record:
        found = Record()
        for line in self.run.journal.read_bytes().splitlines():
            found.apply(decode(line))
        return found

    def attempt_config(self, number: int) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self.run.attempt(number).config.read_bytes())
        return config

    def begin(self, number: int) -> None:
        """The trainer of an attempt starts, and leaves its events and checkpoints."""
        self.started.append(number)
        life = self.lives[number]
        folder = self.run.attempt(number)
        folder.root.mkdir(parents=True, exist_ok=True)
        folder.events.write_bytes(b"".join(lines(life.events, first_t=self.now)))
        folder.train_log.write_text(life.log)
        for step in _saved(life.events):
            checkpoint = self.run.checkpoints / f"step-{step:08d}"
            checkpoint.mkdir(parents=True, exist_ok=True)
            manifest = {"step": step, "attempt": number}
            (checkpoint / "manifest.json").write_text(json.dumps(manifest))

    def emit(self, number: int, event: EventBody) -> None:
        """Another event of an attempt's trainer."""
        path = self.run.attempt(number).events
        seq = path.read_bytes().count(b"\n")
        with path.open("ab") as file:
            file.write(encode(seq, self.now, *event))

    def finish(self, number: int, end: Exit | None) -> None:
        if end is not None:
            self.ends.setdefault(number, end)


class ScriptedProcesses:
    """The supervisor's `Processes`, over a `Box`. A new one, as a new supervisor, remembers nothing
    of the preparations."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._preparing: dict[int, int] = {}
        self._observed: dict[int, int] = {}

    def prepare(self, attempt: int) -> None:
        if attempt not in self._preparing:
            self._preparing[attempt] = 0
            self._box.requests.append(("prepare", attempt))
            self._box.run.attempt(attempt).setup_log.write_text(self._box.lives[attempt].setup_log)

    def prepared(self, attempt: int) -> int | None:
        if attempt not in self._preparing:
            return None
        self._preparing[attempt] += 1
        return None if self._preparing[attempt] < 2 else self._box.lives[attempt].prepared

    def start(self, attempt: int) -> None:
        if attempt not in self._box.started:
            self._box.begin(attempt)

    def observe(self, attempt: int) -> Observation:
        if attempt not in self._box.started:
            return Observation("absent")
        self._observed[attempt] = self._observed.get(attempt, 0) + 1
        if self._observed[attempt] > 2:
            self._box.finish(attempt, self._box.lives[attempt].end)
        if attempt in self._box.ends:
            return Observation("ended", self._box.ends[attempt])
        return Observation("running")

    def terminate(self, attempt: int) -> None:
        self._box.requests.append(("terminate", attempt))
        if attempt in self._box.started and self._box.can_hear:
            self._box.finish(attempt, self._box.lives[attempt].on_sigterm)

    def kill(self, attempt: int) -> None:
        self._box.requests.append(("kill", attempt))
        if attempt in self._box.started:
            self._box.finish(attempt, Exit(None, 9))


def _saved(events: Iterable[EventBody]) -> list[int]:
    return [fields["step"] for kind, fields in events if fields.get("action") == "saved"]
