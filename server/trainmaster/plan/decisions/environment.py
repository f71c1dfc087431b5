"""Plans the Python environment as far as possible; the host decides the rest."""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.environment.lock import locked
from trainer_runtime.core.environment.requirements import name_of
from trainer_runtime.core.environment.torch_builds import (
    CPU_INDEX,
    OLDEST_TORCH,
    SOURCE,
    torch_bound,
)
from trainer_runtime.core.inputs.hub_dataset import PREFIX as HUB
from trainer_runtime.core.inputs.object_store import packages_of
from trainer_runtime.core.protocol.figures import gib_text
from trainmaster.errors.errors import HostError
from trainmaster.plan.decisions.container import choose_image, facts_in_image, is_contained
from trainmaster.plan.decisions.method import form_of
from trainmaster.plan.decisions.requirements import (
    BULK_ENCODER,
    Mismatch,
    accepted,
    mismatches,
    requirements,
)
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.decisions.tokenizer import BYTE, NONE, chosen_tokenizer
from trainmaster.plan.facts import GpuFacts, HostFacts, TokenizerFacts
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import EnvironmentSpec, TrainingSpec

# What is installed where the host has no PyTorch that can be used.
TORCH_VERSION = "2.13.0"
# Unpacked, with the CUDA libraries that its wheels for GPUs bring.
_TORCH_GIB = {"cuda": 8.0, "cpu": 2.0}


def may_install(spec: TrainingSpec) -> bool:
    """Whether an environment may be built for the run; else one interpreter is taken as it is."""
    environment = spec.environment
    if is_contained(spec):
        return False
    if isinstance(environment, EnvironmentSpec):
        more = (environment.requirements, environment.wheels, environment.setup)
        return environment.python is None or any(more) or bool(environment.modules)
    return environment == "auto"


def facts_to_train_by(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> HostFacts:
    """The facts as they will be once the host has installed the missing packages.

    A PyTorch that can't use the host's GPUs is one that will be replaced, unless the CPU is asked
    for; and where no PyTorch for them exists, they count as not there.
    """
    if is_contained(spec):
        return facts_in_image(facts)
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
    """The config's `environment`, from which the host creates the environment."""
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
    environment = spec.environment
    if isinstance(environment, EnvironmentSpec):
        section["requirements"] = environment.requirements is not None
        section["setup"] = environment.setup is not None
        section["modules"] = list(environment.modules or [])
        there = (environment.wheels or "").removeprefix(f"{spec.host}:") or None
        section["wheels"] = facts.wheels if section["wheels_from"] is not None else there
    if is_contained(spec):
        choose_image(spec, facts, ledger)
    else:
        _decide_torch(spec, facts, bound, ledger)
    return section


def choose_requirements(
    spec: TrainingSpec,
    facts: HostFacts,
    section: dict[str, Any],
    strategy: str,
    ledger: Ledger,
    *,
    tokenizer: TokenizerFacts | None = None,
    compression: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """What `requirements.txt` asks for; `tokenizer`: None for bytes. `compression`: of the data.

    Raises:
        HostError: ENVIRONMENT_MISMATCH, one interpreter is to be taken as it is, and has not what
            the framework needs.
    """
    packages = () if tokenizer is None else tokenizer.packages
    pins = _pins(spec, strategy, packages, compression)
    if is_contained(spec):
        return (f"torch>={OLDEST_TORCH}", *accepted(pins))
    _check_packages(spec, facts, pins, ledger)
    _warn_of_no_digests(spec, pins, ledger)
    lines = accepted(pins) if _is_fixed(spec) else pins
    return (_torch_requirement(facts, section), *lines)


def _warn_of_no_digests(spec: TrainingSpec, pins: tuple[str, ...], ledger: Ledger) -> None:
    """Say what is installed as the host's package index serves it, by no digest of the lock."""
    environment = spec.environment
    if not may_install(spec) or spec.host == "debug":
        return
    if isinstance(environment, EnvironmentSpec) and environment.requirements is not None:
        ledger.warn(
            "If a line of environment.requirements has no --hash, the environment is installed as "
            "the host's package index serves it, without the lock's digests "
            "(`uv pip compile --generate-hashes` writes them)."
        )
    unlocked = [name_of(pin) or pin for pin in pins if locked([pin]) is None]
    if unlocked:
        ledger.warn(
            f"The lock does not hold {', '.join(unlocked)}: the environment is installed as the "
            "host's package index serves it, without digests."
        )


def with_packages(
    spec: TrainingSpec, config: dict[str, Any], required: tuple[str, ...]
) -> dict[str, Any]:
    """The config with what `requirements.txt` asks for, where that is more than PyTorch: a resume
    with another strategy may need other packages, and sends the config's changes alone."""
    if len(required) == 1:
        return config
    environment = {**config["environment"], "packages": list(required)}
    cuts = form_of(spec) == "shards" and chosen_tokenizer(spec) not in (BYTE, NONE)
    if cuts and may_install(spec) and _wheels(spec) is None:
        environment["optional"] = [BULK_ENCODER]
    return {**config, "environment": environment}


def _torch_requirement(facts: HostFacts, section: dict[str, Any]) -> str:
    if facts.torch is not None:
        # Without the build's own suffix (`+cpu`), which no package index knows under that name.
        return f"torch=={facts.torch.version.split('+')[0]}"
    bound = section["bound"].get("torch")
    return f"torch{bound}" if bound else f"torch=={TORCH_VERSION}"


def environment_gib(spec: TrainingSpec, facts: HostFacts, target: Target) -> tuple[float, float]:
    """Disk that a new environment takes at least and at most; 0 where the host's own will do.

    Without a GPU the CPU build is installed, if the host's package indexes have it.
    """
    if not target.on_host or spec.host == "debug" or not may_install(spec):
        return 0.0, 0.0
    lacking = facts.torch is None or mismatches(_pins(spec, "single"), facts.packages or {})
    framework = framework_of(spec).packages_gib if lacking else 0.0
    if not _is_built(spec, facts):
        return framework, framework
    least, most = _TORCH_GIB["cuda" if facts.gpus else "cpu"], _TORCH_GIB["cuda"]
    return least + framework, most + framework


def warn_of_cuda_without_gpu(spec: TrainingSpec, facts: HostFacts, ledger: Ledger) -> None:
    """Warn of the CUDA libraries of PyPI's PyTorch on a host without a GPU."""
    chosen = any(name.startswith(("PIP_", "UV_")) for name in spec.env) or _wheels(spec) is not None
    if facts.gpus or chosen or not _is_built(spec, facts):
        return
    more_gib = _TORCH_GIB["cuda"] - _TORCH_GIB["cpu"]
    ledger.warn(
        f"Unless the host's package index has the CPU build of PyTorch (PyPI does not), the build "
        f"for GPUs is installed, which takes about {gib_text(more_gib)} more. "
        f'`env: {{PIP_EXTRA_INDEX_URL: "{CPU_INDEX}"}}` selects the smaller one.'
    )


def wheels_to_send(spec: TrainingSpec) -> str | None:
    """The folder of this machine whose wheels the host has to be sent."""
    wheels = _wheels(spec)
    sent = wheels is not None and wheels.startswith("/") and spec.host not in ("local", "debug")
    return wheels if sent else None


def _pins(
    spec: TrainingSpec,
    strategy: str,
    tokenizer_packages: tuple[str, ...] = (),
    compression: tuple[str, ...] = (),
) -> tuple[str, ...]:
    adapter = spec.adapter
    # What fetches data from the hub comes with what reads it.
    on_hub = {"hf"} if any(source.path.startswith(HUB) for _, source in spec.data.inputs) else set()
    return requirements(
        framework_of(spec),
        strategy=strategy,
        adapter=adapter.model_dump() if adapter is not None else None,
        tracking=spec.tracking,
        tokenizer=chosen_tokenizer(spec),
        tokenizer_packages=tokenizer_packages,
        formats=spec.data.formats | on_hub,
        compression=compression,
        stores=packages_of(_fetched_and_mirrored(spec)),
        optimizer=spec.optimizer.name,
        filters=spec.data.filters is not None,
    )


def _fetched_and_mirrored(spec: TrainingSpec) -> list[str]:
    """The places that the host reads or writes with packages of the environment."""
    mirror = spec.checkpoint.mirror
    return [*(source.path for _, source in spec.data.inputs), *([mirror] if mirror else [])]


def _is_fixed(spec: TrainingSpec) -> bool:
    """Whether the interpreter is used unchanged or not at all (`Request.is_fixed` on the host)."""
    environment = spec.environment
    if isinstance(environment, EnvironmentSpec) and environment.python is not None:
        return environment.requirements is None and environment.wheels is None
    return environment == "existing"


def _check_packages(
    spec: TrainingSpec, facts: HostFacts, pins: tuple[str, ...], ledger: Ledger
) -> None:
    """Compare the interpreter's packages with the framework's requirements.

    An environment that is built, or changed by a setup script or modules, is checked on the host.
    """
    if not pins or facts.packages is None or spec.host == "debug":
        return
    if may_install(spec):
        if not _is_fixed(spec):
            _decide_packages(facts, pins, ledger)
        return
    wrong = mismatches(accepted(pins), facts.packages)
    if wrong:
        raise HostError(
            "ENVIRONMENT_MISMATCH",
            f"{facts.python_label} on {facts.hostname} has not what {spec.framework} needs: "
            f"{_listed(wrong)}.",
            f"Install it (`{facts.python_label} -m pip install {_quoted(pins)}`), name another "
            "interpreter under environment.python, or set `environment: auto`, which leaves this "
            "one alone and builds one of its own.",
            field="environment",
        )
    untried = mismatches(pins, facts.packages)
    if untried:
        ledger.warn(f"Other versions than those that were tried: {_listed(untried)}.")


def _decide_packages(facts: HostFacts, pins: tuple[str, ...], ledger: Ledger) -> None:
    lacking = mismatches(pins, facts.packages or {})
    if facts.torch is not None and not lacking:
        reason = f"{facts.python_label} has them."
    else:
        reason = "Compatible versions; an environment with them is built in the host's cache."
    ledger.decide("environment.packages", list(pins), reason)


def _listed(wrong: list[Mismatch]) -> str:
    return ", ".join(
        f"{item.name} {item.there or '(missing)'} where {item.wanted.lstrip('=')} is wanted"
        for item in wrong
    )


def _quoted(pins: tuple[str, ...]) -> str:
    return " ".join(f"'{pin}'" if set(pin) & set("<>,") else pin for pin in pins)


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


def _decide_torch(spec: TrainingSpec, facts: HostFacts, bound: str, ledger: Ledger) -> None:
    has_python = (
        isinstance(spec.environment, EnvironmentSpec) and spec.environment.python is not None
    )
    if has_python and (facts.torch is not None or not may_install(spec)):
        return
    if spec.host == "debug":
        ledger.decide("environment.python", facts.python_label, "Simulated: needs no PyTorch.")
    elif facts.torch is not None:
        reason = f"It has PyTorch {facts.torch.version}."
        if may_install(spec):
            reason += " Should it not compute there, another environment is built."
        ledger.decide("environment.python", facts.python_label, reason)
    else:
        wanted = f"torch{bound}" if bound else f"torch=={TORCH_VERSION}"
        reason = (
            f"{facts.python_label} there has no suitable PyTorch: the host uses "
            f"another installation, or installs {wanted} into its cache."
        )
        ledger.decide("environment.torch", wanted, reason, SOURCE if bound else None)
        _warn_of_no_installer(facts, ledger)


def _warn_of_no_installer(facts: HostFacts, ledger: Ledger) -> None:
    if facts.venv_available is False and facts.uv is None:
        ledger.warn(
            f"{facts.python_label} on {facts.hostname} can install nothing: on Debian and Ubuntu "
            "`apt install python3-venv` there, or put uv on its PATH, or name an interpreter that "
            "has PyTorch under environment.python."
        )
