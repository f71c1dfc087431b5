"""Decisions of a training that runs in a container."""

from __future__ import annotations

from trainmaster.plan.facts import HostFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec
from trainmaster.words.errors import HostError


def is_contained(spec: TrainingSpec) -> bool:
    """Whether the image's Python trains, rather than the host's."""
    return spec.compute.launcher == "docker"


def facts_in_image(facts: HostFacts) -> HostFacts:
    """The host's facts without its packages and its compiler, which are not seen inside."""
    return facts.model_copy(update={"torch": None, "packages": None, "c_compiler": None})


def choose_image(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> None:
    """Record what trains.

    Raises:
        HostError: CONTAINER_ENGINE_MISSING.
    """
    if facts.engines == () and spec.host != "debug":
        raise HostError(
            "CONTAINER_ENGINE_MISSING",
            f"`compute.launcher` is docker, but {facts.hostname} has neither docker nor podman on "
            "its search path.",
            "Install Podman there (on Debian and Ubuntu `apt install podman`), or remove "
            "compute.launcher and compute.image to train without a container.",
            field="compute.launcher",
        )
    reason = "Its Python and PyTorch train. The host pulls it where it is missing, and tries it."
    ledger.decide("environment.python", f"python3 of {spec.compute.image}", reason)
