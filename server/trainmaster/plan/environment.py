"""The Python environment as far as it can be planned; the box settles the rest."""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.torch_builds import CPU_INDEX, OLDEST_TORCH, SOURCE, torch_bound
from trainmaster.plan.facts import GpuFacts, HostFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.target import Target
from trainmaster.spec import EnvironmentSpec, TrainingSpec

# What is installed where the host has no PyTorch that can be used.
TORCH_VERSION = "2.13.0"
# Unpacked, with the CUDA libraries that its wheels for GPUs bring.
_TORCH_GIB = {"cuda": 8.0, "cpu": 2.0}


def may_install(spec: TrainingSpec) -> bool:
    """Whether an environment may be built for the run; else one interpreter is taken as it is."""
    environment = spec.environment
    if isinstance(environment, EnvironmentSpec):
        more = (environment.requirements, environment.wheels, environment.setup)
        return environment.python is None or any(more) or bool(environment.modules)
    return environment == "auto"


def facts_to_train_by(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> HostFacts:
    """The facts as they will be once the box has installed what it lacks.

    A PyTorch that can't use the host's GPUs is one that will be replaced, unless the CPU is asked
    for; and where no PyTorch for them exists, they count as not there.
    """
    if not may_install(spec) or not facts.gpus or spec.compute.gpus == 0:
        return facts
    if facts.torch is not None and facts.torch.cuda_available:
        return facts
    if _bound(facts) is None:
        gpu = facts.gpus[0]
        ledger.warn(
            f"The host has a {gpu.name}, but its driver {gpu.driver} is too old for any PyTorch "
            f"from {OLDEST_TORCH} on; 525 is the oldest that will do."
        )
        return facts.model_copy(update={"gpus": ()})
    return facts.model_copy(update={"torch": None})


def choose_environment(
    spec: TrainingSpec, facts: HostFacts, target: Target, ledger: Ledger
) -> dict[str, Any]:
    """The config's `environment`: what the box makes the environment from."""
    bound = (_bound(facts) or "") if target.device == "cuda" and target.on_host else ""
    section: dict[str, Any] = {
        "mode": spec.environment if isinstance(spec.environment, str) else "given",
        "python": _python(spec, facts),
        "requirements": False,
        "setup": False,
        "modules": [],
        "wheels": None,
        "wheels_from": wheels_to_send(spec),
        "bound": {"torch": bound} if bound else {},
    }
    given = spec.environment
    if isinstance(given, EnvironmentSpec):
        section["requirements"] = given.requirements is not None
        section["setup"] = given.setup is not None
        section["modules"] = list(given.modules or [])
        there = (given.wheels or "").removeprefix(f"{spec.host}:") or None
        section["wheels"] = facts.wheels if section["wheels_from"] is not None else there
    _tell(spec, facts, bound, ledger)
    return section


def torch_requirement(facts: HostFacts, section: dict[str, Any]) -> str:
    """What `requirements.txt` asks for."""
    if facts.torch is not None:
        # Without the build's own suffix (`+cpu`), which no package index knows under that name.
        return f"torch=={facts.torch.version.split('+')[0]}"
    bound = section["bound"].get("torch")
    return f"torch{bound}" if bound else f"torch=={TORCH_VERSION}"


def environment_gib(spec: TrainingSpec, facts: HostFacts, target: Target) -> tuple[float, float]:
    """Disk that a new environment takes at least and at most; 0 where the host's own will do.

    Without a GPU the box takes the build for the CPU, if its package indexes have that.
    """
    if not _is_built(spec, facts) or not target.on_host:
        return 0.0, 0.0
    return _TORCH_GIB["cuda" if facts.gpus else "cpu"], _TORCH_GIB["cuda"]


def warn_of_cuda_without_gpu(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> None:
    """Say what a PyTorch from the usual index brings to a box without a GPU."""
    chosen = any(name.startswith(("PIP_", "UV_")) for name in spec.env) or _wheels(spec) is not None
    if facts.gpus or chosen or not _is_built(spec, facts):
        return
    more_gib = _TORCH_GIB["cuda"] - _TORCH_GIB["cpu"]
    ledger.warn(
        f"Unless the box's package index has PyTorch for the CPU alone (PyPI has not), the one for "
        f"GPUs is installed, which takes some {more_gib:g} GiB more. "
        f'`env: {{PIP_EXTRA_INDEX_URL: "{CPU_INDEX}"}}` brings the smaller one.'
    )


def wheels_to_send(spec: TrainingSpec) -> str | None:
    """The folder of this machine whose wheels the host has to be sent."""
    given = _wheels(spec)
    sent = given is not None and given.startswith("/") and spec.host not in ("local", "debug")
    return given if sent else None


def _is_built(spec: TrainingSpec, facts: HostFacts) -> bool:
    return facts.torch is None and may_install(spec) and spec.host != "debug"


def _wheels(spec: TrainingSpec) -> str | None:
    return spec.environment.wheels if isinstance(spec.environment, EnvironmentSpec) else None


def _python(spec: TrainingSpec, facts: HostFacts) -> str | None:
    if isinstance(spec.environment, EnvironmentSpec):
        return spec.environment.python
    # For `auto` the one to try first: it was seen to have a PyTorch.
    return facts.python_path or None if facts.torch is not None else None


def _bound(facts: HostFacts) -> str | None:
    """What the drivers allow; the oldest counts."""
    bounds = [torch_bound(gpu.driver) for gpu in _with_driver(facts)]
    return None if None in bounds else max((bound or "" for bound in bounds), default="")


def _with_driver(facts: HostFacts) -> list[GpuFacts]:
    return [gpu for gpu in facts.gpus if gpu.driver]


def _tell(spec: TrainingSpec, facts: HostFacts, bound: str, ledger: Ledger) -> None:
    given = isinstance(spec.environment, EnvironmentSpec) and spec.environment.python is not None
    if given and (facts.torch is not None or not may_install(spec)):
        return
    if spec.host == "debug":
        ledger.decide("environment.python", facts.python_path, "Simulated: needs no PyTorch.")
    elif facts.torch is not None:
        reason = f"It has PyTorch {facts.torch.version}."
        if may_install(spec):
            reason += " Should it not compute there, another environment is built."
        ledger.decide("environment.python", facts.python_path, reason)
    else:
        told = f"torch{bound}" if bound else f"torch=={TORCH_VERSION}"
        reason = (
            f"{facts.python_path or 'Python'} there has no PyTorch for this: one that the box "
            f"finds, else {told}, installed into its cache; what follows reckons with that."
        )
        ledger.decide("environment.torch", told, reason, SOURCE if bound else None)
        _warn_of_no_installer(facts, ledger)


def _warn_of_no_installer(facts: HostFacts, ledger: Ledger) -> None:
    if facts.venv_available is False and facts.uv is None:
        ledger.warn(
            f"{facts.python_path} on {facts.hostname} can install nothing: on Debian and Ubuntu "
            "`apt install python3-venv` there, or put uv on its PATH, or name an interpreter that "
            "has PyTorch under environment.python."
        )
