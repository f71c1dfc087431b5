"""Resolves the lock files: `python scripts/make_locks.py [--keep]`.

- `requirements-dev.lock`: what `make setup` installs.
- `trainer_runtime/core/environment/packages.lock`: what hosts install into the environments that
  Trainmaster builds, for all frameworks and for Python 3.10 and newer.
- `tests/support/plan/skypilot.lock`: SkyPilot, which `make setup` installs apart from all other.

Each line pins a version and the sha256 of its files, and names the packages that ask for it.
PyTorch and what comes with it are in none: which build a machine needs depends on its hardware
and on its package indexes (docs/design/supply-chain.md). `--keep`: keep the versions where they
still do.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomllib

from trainer_runtime.core.environment.lock import LockedPackage, parse_lock
from trainmaster.plan.decisions.requirements import lockable

ROOT = Path(__file__).parents[1]
DEVELOPMENT = ROOT / "requirements-dev.lock"
HOSTS = ROOT / "trainer_runtime" / "core" / "environment" / "packages.lock"
SKYPILOT = ROOT / "tests" / "support" / "plan" / "skypilot.lock"
_EXTRAS = ("all", "dev")
# Of the client that checks exported tasks; docs/scale.md names the version.
_SKYPILOT = "skypilot==0.14.1"
# Built for one machine's hardware; torchvision breaks beside another build of PyTorch.
_TORCH = ("torch", "torchvision")
_OF_TORCH = re.compile(r"(?:torch|torchvision|triton|nvidia-.*|cuda-.*)\Z")
# Files for the machines that train, and that develop: Linux on two processors, and pure Python.
_FILE = re.compile(
    r".*(?:-any\.whl|linux[^-]*_(?:x86_64|aarch64)\.whl|\.tar\.gz|\.zip)\Z", re.ASCII
)
_UNUSED = re.compile(r"musllinux|-cp3[0-9]+t-|-pp[0-9]|-cp(3[4-9]|31[5-9])-cp")
_HEADER = """\
# Made by scripts/make_locks.py; read the difference before you commit it.
# {what}
"""


def main() -> int:
    keep = "--keep" in sys.argv[1:]
    extras = [f"--extra={extra}" for extra in _EXTRAS]
    development = _resolved([str(ROOT / "pyproject.toml"), *extras], "3.11", DEVELOPMENT, keep)
    what = "Everything for development but PyTorch; `make setup` installs it."
    _write(DEVELOPMENT, what, development)
    hosts = _resolved_lines(lockable(), "3.10", HOSTS, keep)
    what = "What hosts install beside their PyTorch into the environments that are built there."
    _write(HOSTS, what, hosts)
    what = "SkyPilot, to whose client the tests give exported tasks; scripts/setup_skypilot.sh"
    _write(SKYPILOT, f"{what} installs it.", _resolved_lines([_SKYPILOT], "3.11", SKYPILOT, keep))
    return 0


def _resolved_lines(
    lines: Iterable[str], python: str, before: Path, keep: bool
) -> list[LockedPackage]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.write("".join(f"{line}\n" for line in lines))
        wanted.flush()
        return _resolved([wanted.name], python, before, keep)


def _resolved(inputs: list[str], python: str, before: Path, keep: bool) -> list[LockedPackage]:
    """The packages that `inputs` and PyTorch need, with the digests of the files that are used."""
    with tempfile.TemporaryDirectory() as folder:
        annotated, files = Path(folder, "lock.txt"), Path(folder, "pylock.toml")
        if keep and before.exists():
            annotated.write_text(before.read_text())
        _compile([*inputs, f"--output-file={annotated}", "--generate-hashes"], python)
        pins = Path(folder, "pins.txt")
        packages = parse_lock(annotated.read_text())
        pins.write_text("".join(f"{package.requirement}\n" for package in packages))
        _compile([*inputs, f"--output-file={files}", f"--constraint={pins}"], python)
        digests = _digests(tomllib.loads(files.read_text())["packages"])
    return list(_without_torch(packages, digests))


def _compile(arguments: list[str], python: str) -> None:
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--no-header",
    ]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*command, f"--python-version={python}", *constraints, *arguments], check=True)


def _digests(packages: Iterable[dict[str, Any]]) -> dict[tuple[str, str], tuple[str, ...]]:
    found = {}
    for package in packages:
        files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
        named = {file.get("name") or file["url"].rpartition("/")[2]: file for file in files}
        used = [
            file["hashes"]["sha256"]
            for name, file in sorted(named.items())
            if _FILE.match(name) and not _UNUSED.search(name)
        ]
        found[package["name"], package["version"]] = tuple(used)
    return found


def _without_torch(
    packages: Iterable[LockedPackage], digests: dict[tuple[str, str], tuple[str, ...]]
) -> Iterable[LockedPackage]:
    """The packages that something else than PyTorch asks for."""
    for package in packages:
        askers = tuple(name for name in package.asked_by if not _OF_TORCH.match(name))
        if _OF_TORCH.match(package.name) or (package.asked_by and not askers):
            continue
        used = digests.get((package.name, package.version)) or package.sha256
        yield LockedPackage(package.requirement, used, askers)


def _write(path: Path, what: str, packages: Iterable[LockedPackage]) -> None:
    lines = [str(package) for package in sorted(packages, key=lambda one: one.requirement)]
    path.write_text(_HEADER.format(what=what) + "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
