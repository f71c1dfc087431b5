"""Renting and giving back while replies are lost, providers fail and operators are killed.

`TRAINMASTER_RENTING_TRIALS` says how many (4 by default), `TRAINMASTER_RENTING_SEED` where their
seeds begin; a trial tells its seed where it fails. The boxes of every fifth one never answer; most
of the others come to be ready, and are given back from there.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.machines.rental_home import OFFERS, Renter, renting
from support.providers.lambda_site import LambdaSite
from support.providers.runpod_site import RunPodSite
from support.providers.site import Fault, How, Kind, Site
from support.providers.vast_site import VastSite
from support.runs.running_run import let_it_run, wait_until

from trainmaster.machines.renting.lifecycle import Bounds
from trainmaster.machines.renting.provision import provision
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.machines.renting.release import release
from trainmaster.store.control.instances import RentedBox, RentState
from trainmaster.words.confirmation import agreed
from trainmaster.words.errors import TrainmasterError
from trainmaster.words.paths import HOME_VARIABLE

TRIALS = int(os.environ.get("TRAINMASTER_RENTING_TRIALS", "4"))
SEED = int(os.environ.get("TRAINMASTER_RENTING_SEED", "1"))
# Longer than a process of the home takes to begin, on a machine that is busy.
LATE_S = 10.0
QUIET_S = 90.0
_SITES: dict[str, type[Site]] = {"runpod": RunPodSite, "vast": VastSite, "lambda": LambdaSite}
_OF_PROVIDING: tuple[Kind, ...] = ("offers", "list", "create", "create", "box")
# What a trial with bad luck begins anew, so that there is something to give back.
_MOST_TRIES = 3
_OF_RELEASING: tuple[Kind, ...] = ("list", "end", "end", "box")
_fork = multiprocessing.get_context("fork")


def trials() -> list[tuple[str, int]]:
    """Provider and seed of each: four of six are RunPod's."""
    providers = ("runpod", "vast", "lambda", "runpod", "runpod", "runpod")
    return [(providers[n % len(providers)], SEED + n) for n in range(TRIALS)]


@pytest.mark.parametrize(("provider", "seed"), trials())
def test_no_fault_and_no_kill_leaves_a_box_that_nobody_knows_of(
    provider: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _SITES[provider]() as site, renting(tmp_path, site, monkeypatch, provider) as renter:
        trial = Trial(renter, seed, has_sshd=seed % 5 != 0)
        try:
            for _ in range(_MOST_TRIES):
                trial.go(trial.rents, _OF_PROVIDING)
                trial.until_quiet()
                if trial.holds_a_box:
                    break
            trial.go(trial.releases, _OF_RELEASING)
            trial.until_nothing_is_left()
        finally:
            trial.kill_operators()
            trial.tell()


class Trial:
    """One operator's story: what it does, what goes wrong, and what has to hold all the same."""

    def __init__(self, renter: Renter, seed: int, *, has_sshd: bool) -> None:
        self.renter, self.site, self.seed = renter, renter.site, seed
        self.chance = random.Random(seed)
        self.site.modes.has_sshd = has_sshd
        self.site.modes.listed_late = self.chance.choice((0, 0, 1, 3))
        self.site.modes.listed_after_end = self.chance.choice((0, 0, 2))
        boot_s = 80.0 if has_sshd else self.chance.choice((1.0, 900.0))
        self.bounds = Bounds(boot_s, LATE_S, gone_s=0.2)
        self._operator: multiprocessing.process.BaseProcess | None = None

    def go(self, act: Callable[[], None], kinds: tuple[Kind, ...]) -> None:
        """Have an operator act, with faults, and killed at some moment in a third of all cases."""
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            self._plan_fault(self.chance.choice(kinds))
        operator = _fork.Process(target=act)
        self._operator = operator
        operator.start()
        if self.chance.random() < 1 / 3:
            let_it_run(self.chance.uniform(0.1, 4.0))
            self.kill_operators()
        operator.join(QUIET_S)
        assert operator.exitcode is not None, "the operator hangs"

    def rents(self) -> None:
        with suppress(TrainmasterError):
            self.renter.do(
                lambda workspace: provision(
                    workspace,
                    OFFERS[self.renter.provider],
                    hours=1.0,
                    confirm=agreed,
                    bounds=self.bounds,
                    wait_s=self.wait_s,
                )
            )

    def releases(self) -> None:
        for box in self.renter.boxes():
            with suppress(TrainmasterError):
                self.renter.do(
                    lambda workspace, tag=box.tag: release(
                        workspace, tag, confirm=agreed, force=True, wait_s=self.wait_s
                    )
                )

    @property
    def wait_s(self) -> float:
        return self.chance.choice((0.0, 0.5, 3.0))

    @property
    def holds_a_box(self) -> bool:
        return any(box.open for box in self.renter.boxes())

    def until_quiet(self) -> None:
        """Until nothing is under way but what waits for a person."""
        self._until(lambda: all(self._rests(box) for box in self.renter.boxes()), "quiet")
        known = {box.tag: box for box in self.renter.boxes()}
        for box in self.site.alive:
            assert known[box.name].open
            assert known[box.name].lease_end_t > time.time()

    def until_nothing_is_left(self) -> None:
        self._until(self._nothing_is_left, "the end of every box")
        assert all(not box.open and box.ended_t for box in self.renter.boxes())

    def tell(self) -> None:
        """For whoever counts what the trials came to: `-s`, or where one fails."""
        for box in self.renter.boxes():
            ready = "ready" if box.body.get("ready_t") else "never ready"
            print(f"TRIAL {self.renter.provider} {self.seed}: {ready}, {box.body.get('reason')}")

    def _rests(self, box: RentedBox) -> bool:
        """Whether it is ready, boots for long, or has ended."""
        if box.state is RentState.CREATED:
            return self.bounds.boot_s > QUIET_S
        return box.state in (RentState.READY, RentState.ENDED)

    def _nothing_is_left(self) -> bool:
        return not self.site.alive and not any(box.open for box in self.renter.boxes())

    def _until(self, met: Callable[[], bool], what: str) -> None:
        """Reconcile again and again, as a keeper would, and look at what must always hold."""

        def looked() -> bool:
            self.renter.do(reconcile)
            self._check()
            return met()

        wait_until(looked, what, QUIET_S)

    def _check(self) -> None:
        """One box at most for each intent, ever; and none that is not on record."""
        created = Counter(box.name for box in [*self.site.boxes.values()])
        assert not [tag for tag, count in created.items() if count > 1], created
        assert set(created) <= {box.tag for box in self.renter.boxes()}

    def _plan_fault(self, kind: Kind) -> None:
        how: How = self.chance.choice(("lost", "lost", "status", "garbage"))
        after = self.chance.random() < (0.75 if kind == "create" else 0.5)
        status = self.chance.choice((500, 503, 429))
        if status == 429:  # says that nothing was done, and is not said of what was
            after = False
        call = self.kill_operators if self.chance.random() < 0.4 else _nothing
        fault = Fault(how, after=after, status=status, call=call)
        nth, times = self.chance.choice((1, 1, 2, 3)), self.chance.choice((1, 1, 2))
        self.site.fail(kind, fault, nth=nth, times=times)

    def kill_operators(self) -> None:
        """Kill -9 whoever acts for the home: the command, and the processes that it has begun."""
        if self._operator is not None and self._operator.pid is not None:
            self._operator.kill()  # no-one where it has ended: its number may be another's by now
        marker = f"{HOME_VARIABLE}={self.renter.home}".encode()
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                named = marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if b"tend" in command and named:
                    os.kill(pid, signal.SIGKILL)


def _nothing() -> None:
    return
