"""The lock of the packages that hosts install: versions and sha256 digests, in pip's own format.

`packages.lock` holds everything that a requirement of ours may bring along, but PyTorch and what
comes with that. A selection of it is installed with `--require-hashes`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainer_runtime.core.environment.requirements import name_of

# What a requirement with a digest has behind its version.
DIGEST = "--hash=sha256:"
_LOCK = Path(__file__).with_name("packages.lock")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")
_ASKED = re.compile(r"#\s*(?:via\s*)?(.*)\Z")
_REQUIREMENT = re.compile(r"[A-Za-z0-9].*?(?=\s*(?:\\|#|--hash|\Z))")
# What stays as it is beside a PyTorch: what it brings, and what breaks beside another build of it.
OF_TORCH = ("torch", "torchvision", "triton", "pytorch-triton", "nvidia-", "cuda-")


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """One version: `requirement` is `name==version`, with a marker where it is for some Pythons.

    `sha256`: of the files that may be installed; `asked_by`: the packages that need it.
    """

    requirement: str
    sha256: tuple[str, ...]
    asked_by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return name_of(self.requirement) or self.requirement

    @property
    def version(self) -> str:
        return self.requirement.partition("==")[2].partition(";")[0].strip()

    def __str__(self) -> str:
        """Its lines in a requirements file."""
        hashes = [f"    --hash=sha256:{digest}" for digest in self.sha256]
        lines = " \\\n".join([self.requirement, *hashes])
        return f"{lines}\n    # via {' '.join(self.asked_by)}" if self.asked_by else lines


def parse_lock(text: str) -> list[LockedPackage]:
    """The packages of a requirements file with hashes, as pip-compile and uv write it."""
    packages: list[LockedPackage] = []
    for line in text.splitlines():
        if line[:1].isalnum():
            match = _REQUIREMENT.match(line)
            hashes = tuple(_HASH.findall(line))
            packages.append(LockedPackage(match.group() if match else line, hashes))
        elif packages and line[:1] == " ":
            packages[-1] = _add_line(packages[-1], line.strip())
    return packages


@cache
def locked_packages() -> tuple[LockedPackage, ...]:
    """What `packages.lock` holds."""
    return tuple(parse_lock(_LOCK.read_text()))


def locked(
    lines: Iterable[str], packages: Collection[LockedPackage] | None = None
) -> tuple[LockedPackage, ...] | None:
    """What a set of requirement lines needs, from the lock; None where it does not cover them.

    Lines for PyTorch are left out: the host's own build is installed before.
    """
    lock = locked_packages() if packages is None else packages
    named = {package.name for package in lock}
    wanted: set[str] = set()
    for line in lines:
        name = name_of(line)
        if name is None or (not is_of_torch(name) and not _covers(lock, name, line)):
            return None
        if name in named:
            wanted.add(name)
    while more := {
        package.name
        for package in lock
        if package.name not in wanted and not wanted.isdisjoint(package.asked_by)
    }:
        wanted |= more
    return tuple(package for package in lock if package.name in wanted)


def is_of_torch(name: str) -> bool:
    """Whether a package comes with a PyTorch and stays with it."""
    return any(name == held or (held[-1] == "-" and name.startswith(held)) for held in OF_TORCH)


def _covers(packages: Collection[LockedPackage], name: str, line: str) -> bool:
    """Whether the lock was resolved for this very line, or for the version that it pins."""
    versions = [package.version for package in packages if package.name == name]
    wanted = line.partition(";")[0].partition("==")[2].strip()
    return bool(versions) and (not wanted or wanted in versions)


def _add_line(package: LockedPackage, line: str) -> LockedPackage:
    hashes = tuple(_HASH.findall(line))
    if hashes:
        return LockedPackage(package.requirement, package.sha256 + hashes, package.asked_by)
    match = _ASKED.match(line)
    names = re.findall(r"(?<!\S)[a-z0-9][a-z0-9_-]*(?!\S)", match.group(1)) if match else []
    return LockedPackage(package.requirement, package.sha256, package.asked_by + tuple(names))
