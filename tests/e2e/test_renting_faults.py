"""Rent and release while replies are lost, providers fail and commands are killed.

`TRAINMASTER_RENTING_TRIALS`: the number of trials (4 by default); `TRAINMASTER_RENTING_SEED`: the
first seed; a failing trial prints its seed. In every fifth trial the instances never answer; in
most others they become ready and are released.
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
from support.session.tiers import at_length

from trainmaster.errors.confirmation import agreed
from trainmaster.errors.errors import TrainmasterError
from trainmaster.home.paths import HOME_VARIABLE
from trainmaster.machines.renting.provision import ProvisionRequest, provision
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.machines.renting.release import release
from trainmaster.store.control.instances import RentedInstance, RentState, Timeouts

TRIALS = int(os.environ.get("TRAINMASTER_RENTING_TRIALS", "4"))
SEED = int(os.environ.get("TRAINMASTER_RENTING_SEED", "1"))
# Longer than a process of the home takes to start on a busy machine.
LATE_S = 10.0
QUIET_S = 90.0
_SITES: dict[str, type[Site]] = {"runpod": RunPodSite, "vast": VastSite, "lambda": LambdaSite}
_OF_PROVIDING: tuple[Kind, ...] = ("offers", "list", "create", "create", "instance")
# Attempts to rent, so that there is usually an instance to release.
_MAX_ATTEMPTS = 3
_OF_RELEASING: tuple[Kind, ...] = ("list", "end", "end", "instance")
_fork = multiprocessing.get_context("fork")


def trials() -> list[tuple[str, int]]:
    """Provider and seed of each; four of six are RunPod's."""
    providers = ("runpod", "vast", "lambda", "runpod", "runpod", "runpod")
    return [(providers[n % len(providers)], SEED + n) for n in range(TRIALS)]


@pytest.mark.parametrize(("provider", "seed"), [trials()[0], *at_length(*trials()[1:])])
def test_no_fault_and_no_kill_leaves_an_unrecorded_instance(
    provider: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _SITES[provider]() as site, renting(tmp_path, site, monkeypatch, provider) as renter:
        trial = Trial(renter, seed, has_sshd=seed % 5 != 0)
        try:
            for _ in range(_MAX_ATTEMPTS):
                trial.go(trial.rents, _OF_PROVIDING)
                trial.until_quiet()
                if trial.holds_an_instance:
                    break
            trial.go(trial.releases, _OF_RELEASING)
            trial.until_nothing_is_left()
        finally:
            trial.kill_operators()
            trial.print_outcome()


class Trial:
    """One trial: actions of a command, faults, and invariants."""

    def __init__(self, renter: Renter, seed: int, *, has_sshd: bool) -> None:
        self.renter, self.site, self.seed = renter, renter.site, seed
        self.chance = random.Random(seed)
        self.site.modes.has_sshd = has_sshd
        self.site.modes.listed_late = self.chance.choice((0, 0, 1, 3))
        self.site.modes.listed_after_end = self.chance.choice((0, 0, 2))
        boot_s = 80.0 if has_sshd else self.chance.choice((1.0, 900.0))
        self.timeouts = Timeouts(boot_s, LATE_S, gone_s=0.2)
        self._operator: multiprocessing.process.BaseProcess | None = None

    def go(self, act: Callable[[], None], kinds: tuple[Kind, ...]) -> None:
        """Run an action in a process with faults; a third of them are killed."""
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
                    ProvisionRequest(OFFERS[self.renter.provider], 1.0, timeouts=self.timeouts),
                    confirm=agreed,
                    wait_s=self.wait_s,
                )
            )

    def releases(self) -> None:
        for instance in self.renter.instances():
            with suppress(TrainmasterError):
                self.renter.do(
                    lambda workspace, tag=instance.tag: release(
                        workspace, tag, confirm=agreed, force=True, wait_s=self.wait_s
                    )
                )

    @property
    def wait_s(self) -> float:
        return self.chance.choice((0.0, 0.5, 3.0))

    @property
    def holds_an_instance(self) -> bool:
        return any(instance.open for instance in self.renter.instances())

    def until_quiet(self) -> None:
        """Until no step is pending."""
        self._until(
            lambda: all(self._rests(instance) for instance in self.renter.instances()), "quiet"
        )
        known = {instance.tag: instance for instance in self.renter.instances()}
        for instance in self.site.alive:
            assert known[instance.name].open
            assert known[instance.name].lease_end_t > time.time()

    def until_nothing_is_left(self) -> None:
        self._until(self._nothing_is_left, "the end of every instance")
        assert all(not instance.open and instance.ended_t for instance in self.renter.instances())

    def print_outcome(self) -> None:
        """Print the outcome, shown with `-s` or for a failure."""
        for instance in self.renter.instances():
            ready = "ready" if instance.ready_t else "never ready"
            print(f"TRIAL {self.renter.provider} {self.seed}: {ready}, {instance.end_reason}")

    def _rests(self, instance: RentedInstance) -> bool:
        """Whether it is ready, boots for long, or has ended."""
        if instance.state is RentState.CREATED:
            return self.timeouts.boot_s > QUIET_S
        return instance.state in (RentState.READY, RentState.ENDED)

    def _nothing_is_left(self) -> bool:
        return not self.site.alive and not any(
            instance.open for instance in self.renter.instances()
        )

    def _until(self, met: Callable[[], bool], what: str) -> None:
        """Reconcile repeatedly, as a keeper does, and check the invariants."""

        def reconciled() -> bool:
            self.renter.do(reconcile)
            self._check()
            return met()

        wait_until(reconciled, what, QUIET_S)

    def _check(self) -> None:
        """At most one instance per intent, and none without a record."""
        created = Counter(instance.name for instance in [*self.site.instances.values()])
        assert not [tag for tag, count in created.items() if count > 1], created
        assert set(created) <= {instance.tag for instance in self.renter.instances()}

    def _plan_fault(self, kind: Kind) -> None:
        how: How = self.chance.choice(("lost", "lost", "status", "garbage"))
        after = self.chance.random() < (0.75 if kind == "create" else 0.5)
        status = self.chance.choice((500, 503, 429))
        if status == 429:  # means that nothing was done, so it comes before the effect
            after = False
        call = self.kill_operators if self.chance.random() < 0.4 else _nothing
        fault = Fault(how, after=after, status=status, call=call)
        nth, times = self.chance.choice((1, 1, 2, 3)), self.chance.choice((1, 1, 2))
        self.site.fail(kind, fault, nth=nth, times=times)

    def kill_operators(self) -> None:
        """Kill -9 all processes of the home: the command, and the workers it has started."""
        if self._operator is not None and self._operator.pid is not None:
            self._operator.kill()  # a no-op after its end, when its pid may be reused
        marker = f"{HOME_VARIABLE}={self.renter.home}".encode()
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                named = marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if b"provision-worker" in command and named:
                    os.kill(pid, signal.SIGKILL)


def _nothing() -> None:
    return
