"""Decisions of a training that runs in a container."""

from __future__ import annotations

from trainmaster.errors.errors import HostError
from trainmaster.plan.facts import HostFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec


def is_contained(spec: TrainingSpec) -> bool:
    """Whether the image's Python trains, rather than the host's."""
    return spec.compute.launcher == "docker"


def facts_in_image(facts: HostFacts) -> HostFacts:
    """The host's facts without its packages and its compiler, which are not seen inside."""
    return facts.model_copy(update={"torch": None, "packages": None, "c_compiler": None})


def choose_image(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> None:
    """Record what trains.

    Raises:
        HostError: UNSUPPORTED, a cluster; CONTAINER_ENGINE_MISSING.
    """
    _refuse_cluster(facts)
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


def _refuse_cluster(facts: HostFacts) -> None:
    """Refuse containers in a scheduler's jobs. A daemon's container does not belong to the job: it
    has neither its limits nor its GPUs, outlives it when it is killed, and the next job, on another
    node, could neither see nor remove it."""
    if facts.slurm is None:
        return
    raise HostError(
        "UNSUPPORTED",
        f"`compute.launcher` is docker, but {facts.hostname} is a Slurm cluster: a container would "
        "run outside of the job, without its limits, and outlive it.",
        "Remove compute.launcher and compute.image: `environment: auto` installs what the training "
        "needs there, and `environment: {modules: […]}` loads the cluster's modules. Or choose a "
        "host with Docker or Podman that is not a cluster.",
        field="compute.launcher",
    )
