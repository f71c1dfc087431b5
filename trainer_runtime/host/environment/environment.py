"""The Python environment that trains: found where it works, else built in the cache.

What is asked for stands in the config's `environment`; what came of it is written beside the config
as `environment.json`, from which hold takes the interpreter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.config import EnvironmentConfig
from trainer_runtime.core.environment.lock import DIGEST, LockedPackage, locked, parse_lock
from trainer_runtime.core.environment.requirements import (
    name_of,
    requirement_lines,
    satisfied,
    unsatisfied,
)
from trainer_runtime.core.environment.torch_builds import cpu_build
from trainer_runtime.core.frameworks.packages import BUILD_TOOLS, BUILT_IN_PLACE
from trainer_runtime.host.environment.installers import (
    EnvironmentUnusableError,
    Installer,
    find_installer,
)
from trainer_runtime.host.environment.interpreters import (
    Interpreter,
    candidates,
    check_torch,
    driver,
    probe_interpreter,
)
from trainer_runtime.host.environment.venvs import Recipe, provide
from trainer_runtime.host.processes.commands import Report

REQUIREMENTS = "requirements.txt"
OWN_REQUIREMENTS = "requirements-extra.txt"
# What comes with a PyTorch and is to stay with it.
_HELD = ("torch", "triton", "pytorch-triton", "nvidia-", "cuda-")


@dataclass(frozen=True, slots=True)
class Box:
    """Where the environment is made: `folder` is the run's, `variables` what commands see."""

    folder: Path
    cache: Path
    device: str
    variables: Mapping[str, str]
    report: Report


@dataclass(slots=True)
class _Search:
    """The interpreters that were probed, and why they were rejected."""

    request: EnvironmentConfig
    box: Box
    found: list[Interpreter] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def settle(request: EnvironmentConfig, box: Box) -> dict[str, Any]:
    """The interpreter that is to train, built first where need be: what `environment.json` says.

    Raises:
        EnvironmentUnusableError: there is none, and none can be built.
        EnvironmentUnavailableError: none can be built just now.
    """
    ours = required_lines(request, box.folder)
    own = _lines(box.folder / OWN_REQUIREMENTS, needed=True) if request.requirements else []
    search = _Search(request, box)
    # Ours asks for a PyTorch that trains, which one that computes does, whichever it is; and what
    # the user's own lines name is theirs to choose.
    named = {"torch", *(name_of(line) for line in own)}
    lines = [line for line in ours if name_of(line) not in named] + own
    base: Interpreter | None = None
    for python in _interpreters(search):
        missing = unsatisfied(lines, python.installed)
        if base is not None and missing:
            continue
        version = _working_torch(python, search)
        if version is None:
            continue
        if not missing:
            box.report(f"environment: {python.python} with PyTorch {version}, as it is")
            return _resolved(python, "as it is", version, None)
        if request.is_fixed:
            raise EnvironmentUnusableError(f"{python.python} lacks {', '.join(missing)}")
        base = python
    optional = [line for line in request.optional if name_of(line) not in named]
    if base is not None:
        return _on_top(base, lines + optional, search)
    if request.is_fixed or not search.found:
        raise EnvironmentUnusableError(_nothing_works(search))
    return _fresh(ours + optional, own, search)


def required_lines(request: EnvironmentConfig, folder: Path) -> list[str]:
    """What the training needs, by the plan; `folder`: the run's."""
    return list(request.packages) or _lines(folder / REQUIREMENTS, needed=False)


def _lines(path: Path, *, needed: bool) -> list[str]:
    try:
        return requirement_lines(path.read_text())
    except FileNotFoundError:
        if not needed:
            return []
        raise EnvironmentUnusableError(f"the run's folder has no {path.name}") from None


def _interpreters(search: _Search) -> Iterator[Interpreter]:
    """The interpreters that may be used, each probed when it is its turn."""
    request, box = search.request, search.box
    names = [request.python] if request.python is not None else []
    if request.mode == "auto" or not names:
        names += candidates(box.variables, own_first=not request.modules)
    seen = set()
    for name in names:
        interpreter, problem = probe_interpreter(
            os.path.expanduser(name), box.variables, box.folder
        )
        if interpreter is None:
            search.problems.append(f"{name}: {problem}")
        elif interpreter.prefix not in seen:
            seen.add(interpreter.prefix)
            search.found.append(interpreter)
            yield interpreter


def _working_torch(python: Interpreter, search: _Search) -> str | None:
    """The version of its PyTorch, if that computes; else why not is among the problems."""
    if python.torch is None:
        search.problems.append(f"{python.python} has no PyTorch")
        return None
    box = search.box
    checked = check_torch(
        python, box.device, environment=box.variables, folder=box.folder, cache=box.cache
    )
    if checked.version is None:
        text = f"PyTorch of {python.python} can't be used on {box.device}: {checked.problem}"
        search.problems.append(text)
        box.report(f"environment: {text}")
    return checked.version


def _on_top(base: Interpreter, lines: list[str], search: _Search) -> dict[str, Any]:
    held = {name: version for name, version in base.installed.items() if _is_held(name)}
    moved = [line for line in lines if name_of(line) in held and not satisfied(line, held)]
    if moved:
        raise EnvironmentUnusableError(
            f"{', '.join(moved)} would replace what the PyTorch of {base.python} needs (torch "
            f"{held['torch']}), which is held since it works here; ask for what goes with it, or "
            "name an interpreter without PyTorch"
        )
    constraints = tuple(f"{name}=={version}" for name, version in sorted(held.items()))
    wheels = search.request.wheels
    recipe = Recipe(base, tuple(lines), constraints, (), wheels, (), _lock_of(lines, search))
    built, version = _provided(recipe, search)
    return _resolved(built, f"on top of {base.python}", version, recipe.name())


def _fresh(ours: list[str], own: list[str], search: _Search) -> dict[str, Any]:
    search.box.report(f"environment: {_nothing_works(search)}; building one")
    able = [python for python in search.found if _installer(python, search) is not None]
    bounds = search.request.bounds
    lines = list(own)
    named = {name_of(line) for line in own}
    for line in ours:
        if name_of(line) not in named:
            bound = bounds.get("torch", "") if name_of(line) == "torch" else ""
            lines.append(f"torch{bound}" if bound else line)
    limits = tuple(f"{name}{limit}" for name, limit in sorted(bounds.items()) if limit)
    base = (able or search.found)[0]
    preferred = _without_cuda(lines) if search.box.device == "cpu" and not driver() else ()
    wheels = search.request.wheels
    recipe = Recipe(base, tuple(lines), (), limits, wheels, preferred, _lock_of(lines, search))
    built, version = _provided(recipe, search)
    return _resolved(built, "built", version, recipe.name())


def _lock_of(lines: list[str], search: _Search) -> tuple[LockedPackage, ...] | None:
    """The lines' packages with their digests; None where one has none, or the user's own wheels
    are to be used."""
    own = parse_lock("".join(f"{line}\n" for line in lines if DIGEST in line))
    ours = [line for line in lines if DIGEST not in line]
    if search.request.wheels is not None:
        return None
    built = any(name_of(line) in BUILT_IN_PLACE for line in ours)
    packages = locked([*ours, *(BUILD_TOOLS if built else ())])
    if packages is None:
        return None
    named = {package.name for package in own}
    return (*own, *(package for package in packages if package.name not in named))


def _without_cuda(lines: list[str]) -> tuple[str, ...]:
    """What a machine without a GPU is better off with, where it can be had."""
    return tuple(build for line in lines if (build := cpu_build(line)) is not None)


def _provided(recipe: Recipe, search: _Search) -> tuple[Interpreter, str]:
    """The recipe's interpreter, and the version of its PyTorch, which computes."""
    box = search.box
    versions: list[str] = []

    def verify(python: Interpreter) -> None:
        version = _working_torch(python, search)
        if version is None:
            raise EnvironmentUnusableError(f"{search.problems[-1]}{_driver_note(box)}")
        versions.append(version)

    def installer() -> Installer:
        provided = _installer(recipe.base, search)
        if provided is None:
            raise EnvironmentUnusableError(_nobody_installs(recipe.base))
        return provided

    built = provide(
        recipe,
        installer,
        verify,
        cache=box.cache,
        environment=box.variables,
        folder=box.folder,
        report=box.report,
    )
    if not versions:  # it was there; the driver may be another by now
        verify(built)
    return built, versions[-1]


def _installer(base: Interpreter, search: _Search) -> Installer | None:
    return find_installer(base, search.found, search.box.variables)


def _is_held(name: str) -> bool:
    return any(name == held or (held[-1] == "-" and name.startswith(held)) for held in _HELD)


def _resolved(python: Interpreter, how: str, version: str, name: str | None) -> dict[str, Any]:
    return {"python": python.python, "how": how, "torch": version, "hash": name}


def _nothing_works(search: _Search) -> str:
    return "; ".join(search.problems) or "no Python 3.10 or newer was found"


def _driver_note(box: Box) -> str:
    version = driver()
    return f" (NVIDIA driver {version})" if box.device == "cuda" and version else ""


def _nobody_installs(base: Interpreter) -> str:
    return (
        f"nothing here can install packages for {base.python}: it has neither pip (22.3 or newer) "
        "nor what venv needs to bring one (on Debian and Ubuntu: apt install python3-venv), and "
        "uv is missing; or name an interpreter with PyTorch under environment.python"
    )
