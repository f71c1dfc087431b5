"""The batch script of a run on a cluster: `job.sh`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.errors.errors import UsageError
from trainmaster.home.assets import Assets
from trainmaster.plan.templates import rendered

# A word of a directive, which no shell and no second directive can be made of.
DIRECTIVE = re.compile(r"[A-Za-z0-9_.@+:,=&|*()\[\]-]{1,200}")
# The name of an environment module, which no shell text can be made of.
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+/-]{0,99}")
_TEMPLATE = "launch/job.sh.j2"
_WHERE = ("partition", "account", "qos", "constraint", "gres")


def job_files(config: Mapping[str, Any], run_id: str, assets: Assets) -> dict[str, bytes]:
    """`job.sh` by its name for a run whose config has a section `slurm`, and `array.sh` where its
    first job is a task of an array; nothing for another.

    Raises:
        UsageError: `BAD_ARGUMENT`, a value can't stand in a directive.
    """
    section = config.get("slurm")
    if section is None:
        return {}
    options = [*nodes_options(section), *_limits(section)]
    name = checked_directive("job-name", run_id)
    nodes = int(config.get("compute", {}).get("nodes") or 1)
    values = {"options": options, "nodes": nodes, "modules": modules_of(section)}
    scripts: dict[str, tuple[str, str | None]] = {"job.sh": (name, None)}
    if array := section.get("array"):
        scripts["array.sh"] = (checked_directive("job-name", array["name"]), _tasks(array))
    return {
        file: rendered(assets, _TEMPLATE, {**values, "job_name": name, "array": tasks}).encode()
        for file, (name, tasks) in scripts.items()
    }


def nodes_options(section: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The options of sbatch for the nodes that a section `slurm` asks for, and who is charged.

    Raises:
        UsageError: `BAD_ARGUMENT`, as `job_files`.
    """
    asked = [(name, section.get(name)) for name in _WHERE]
    asked.append(("cpus-per-task", section["cpus"]))
    if section.get("memory_mib"):
        asked.append(("mem", f"{section['memory_mib']}M"))
    return [(name, checked_directive(name, value)) for name, value in asked if value]


def modules_of(section: Mapping[str, Any]) -> list[str]:
    """The modules that a job loads first.

    Raises:
        UsageError: `BAD_ARGUMENT`, one is not the name of a module.
    """
    return [checked_module(module) for module in section.get("modules") or ()]


def checked_directive(name: str, value: object) -> str:
    """A value as the word of a directive.

    Raises:
        UsageError: `BAD_ARGUMENT`, it has other characters.
    """
    text = str(value)
    if DIRECTIVE.fullmatch(text) is None:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{text[:60]!r} can't be given to Slurm as --{name}.",
            "Use letters, digits and _ . @ + : , = & | * ( ) [ ] - only.",
            field=f"--{name}",
        )
    return text


def checked_module(name: str) -> str:
    """A name that `module load` may be given.

    Raises:
        UsageError: `BAD_ARGUMENT`, it has other characters.
    """
    if _MODULE.fullmatch(name) is None:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{name[:60]!r} is not a valid name of a module.",
            "Give one as `module avail` shows it, such as cuda/12.4.",
            field="--module",
        )
    return name


def _tasks(array: Mapping[str, Any]) -> str:
    """As `--array` takes them."""
    throttle = f"%{int(array['at_once'])}" if array.get("at_once") else ""
    return f"0-{int(array['size']) - 1}{throttle}"


def _limits(section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "time", checked_directive("time", section["limit_minutes"])
    if section.get("signal_s"):
        yield "signal", checked_directive("signal", f"B:USR1@{section['signal_s']}")
