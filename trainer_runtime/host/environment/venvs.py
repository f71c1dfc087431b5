"""Virtual environments in the cache, one per recipe, shared by runs.

An entry is `<cache>/venvs/<hash>`. It is built in place, since an environment can't be moved, under
a lock of its own; `.complete` is written last. One without it, or whose interpreter no longer runs,
is removed and built again.

Which build a machine needs depends on its processor, its driver and its package indexes, so that no
lock of ours can name its digest. The first installation is recorded in the cache (`locks/`) with
the digests of the files that pip was given; a later one takes those files and no others.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from trainer_runtime.core.decoding import DecodingError, Fields, decode_fields
from trainer_runtime.core.environment.lock import DIGEST, LockedPackage, is_of_torch
from trainer_runtime.core.environment.requirements import name_of, normalised
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.frameworks.packages import BUILT_IN_PLACE, DISPENSABLE, modules_of
from trainer_runtime.host.environment.installers import (
    EnvironmentUnusableError,
    Installer,
    Wanted,
    build_in_place,
    install,
    uninstall,
)
from trainer_runtime.host.environment.interpreters import (
    Interpreter,
    check_imports,
    probe_interpreter,
)
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.processes.commands import Report, follow

_MOST_BYTES = 16 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FORMAT = 1
_COMPLETE = ".complete"
# Sorts behind the names that packages bring, so that what they add comes first.
_BENEATH = "zz_beneath.pth"


class _Settings(TypedDict):
    environment: Mapping[str, str]
    lock: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an environment is made of.

    `lines`: requirement lines. `held`: `name==version` of the packages of `base` that the new
    environment stands on; none for one that stands alone. `bounds`: constraint lines; `preferred`:
    more of them, for as long as they can be met. `locked`: what the lock names for the lines, by
    which everything but PyTorch is installed; None where the lines are resolved on the host.
    """

    base: Interpreter
    lines: Sequence[str]
    held: Sequence[str]
    bounds: Sequence[str]
    wheels: str | None
    preferred: Sequence[str] = ()
    locked: Sequence[LockedPackage] | None = None

    @property
    def on_top(self) -> bool:
        return bool(self.held)

    def name(self) -> str:
        """The entry's name: the same for the same environment."""
        parts = {
            "format": _FORMAT,
            "base": [self.base.python, self.base.version, self.base.prefix],
            "lines": list(self.lines),
            "held": list(self.held),
            "bounds": list(self.bounds),
            "wheels": _listing(self.wheels),
            **({"preferred": list(self.preferred)} if self.preferred else {}),
            **({"locked": [str(package) for package in self.locked]} if self.locked else {}),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def provide(
    recipe: Recipe,
    installer: Callable[[], Installer],
    verify: Callable[[Interpreter], None],
    *,
    cache: Path,
    environment: Mapping[str, str],
    folder: Path,
    report: Report,
) -> Interpreter:
    """The interpreter of the recipe's environment, built first where the cache lacks it.

    Safe to call from several processes at once. `verify` raises if the built one does not work.

    Raises:
        EnvironmentUnusableError: it can't be built.
        EnvironmentUnavailableError: it can't be built just now.
    """
    entry = cache / "venvs" / recipe.name()
    entry.parent.mkdir(parents=True, exist_ok=True)
    with _locked(entry.with_name(f"{entry.name}.lock"), report) as lock:
        interpreter = _complete_venv(entry, environment, folder)
        if interpreter is not None:
            report(f"environment: {entry} is there")
            return interpreter
        shutil.rmtree(entry, ignore_errors=True)
        report(f"environment: building {entry}")
        maker = installer()
        _create(entry, recipe, maker, environment, report)
        _fill(entry, recipe, maker, cache=cache, environment=environment, lock=lock, report=report)
        built, problem = probe_interpreter(str(entry / "bin" / "python"), environment, folder)
        if built is None:
            raise EnvironmentUnusableError(f"the new environment's interpreter fails: {problem}")
        verify(built)
        imports = partial(
            check_imports, built.python, modules_of(recipe.lines), environment, folder
        )
        _verify_imports(imports, entry, maker, environment, report)
        mark = {"v": _FORMAT, "base": recipe.base.python, **_parts_of(recipe)}
        write_json(entry / _COMPLETE, mark)
        return built


def _listing(wheels: str | None) -> list[list[Any]] | None:
    """Raises: EnvironmentUnusableError, the folder can't be read."""
    if wheels is None:
        return None
    try:
        with os.scandir(wheels) as entries:
            return sorted([item.name, item.stat().st_size] for item in entries if item.is_file())
    except OSError as error:
        raise EnvironmentUnusableError(f"the wheels in {wheels}: {error.strerror}") from None


def _parts_of(recipe: Recipe) -> dict[str, Any]:
    return {"lines": list(recipe.lines), "held": list(recipe.held), "bounds": list(recipe.bounds)}


@contextmanager
def _locked(path: Path, report: Report) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("environment: waiting for another run that builds the same one")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _complete_venv(entry: Path, environment: Mapping[str, str], folder: Path) -> Interpreter | None:
    marked = read_json(entry / _COMPLETE)
    if marked is None or marked.get("v") != _FORMAT:
        return None
    interpreter, _ = probe_interpreter(str(entry / "bin" / "python"), environment, folder)
    return interpreter


def _create(
    entry: Path,
    recipe: Recipe,
    installer: Installer,
    environment: Mapping[str, str],
    report: Report,
) -> None:
    base = recipe.base
    # An environment on top of another virtual one sees that by a path file alone.
    seen = ["--system-site-packages"] if recipe.on_top and _sees_system(base) else []
    if base.venv:
        pip = [] if installer.brings_pip else ["--without-pip"]
        command = [base.python, "-m", "venv", *pip, *seen, str(entry)]
    else:
        command = [*installer.command, "venv", "--python", base.python, *seen, str(entry)]
    variables = {name: value for name, value in environment.items() if name != "PYTHONHOME"}
    ended = follow(
        command, report, label="venv", folder=entry.parent, environment=variables, inherited=[]
    )
    if ended.code != 0:
        raise EnvironmentUnusableError(
            f"{base.python} can't make a virtual environment: {ended.last_words}"
        )
    if recipe.on_top and base.is_virtual:
        _put_on_top(entry, base)
    _keep_pip_settings(entry, base)


def _sees_system(base: Interpreter) -> bool:
    if not base.is_virtual:
        return True
    try:
        text = (Path(base.prefix) / "pyvenv.cfg").read_text().lower()
    except OSError:
        return False
    return any(
        line.replace(" ", "") == "include-system-site-packages=true" for line in text.splitlines()
    )


def _put_on_top(entry: Path, base: Interpreter) -> None:
    """Let the environment see the packages of the virtual one that it is based on."""
    for packages in (entry / "lib").glob("python3*/site-packages"):
        # `addsitedir` reads the path files there, too: what was installed in place is found.
        lines = [f"import site; site.addsitedir({path!r})\n" for path in base.sites]
        (packages / _BENEATH).write_text("".join(lines))


def _keep_pip_settings(entry: Path, base: Interpreter) -> None:
    """A pip.conf of the interpreter's own folder counts for what is built on it as well."""
    own = Path(base.prefix) / "pip.conf"
    if own.is_file():
        shutil.copy2(own, entry / "pip.conf")


def _fill(
    entry: Path,
    recipe: Recipe,
    installer: Installer,
    *,
    cache: Path,
    environment: Mapping[str, str],
    lock: int,
    report: Report,
) -> None:
    if recipe.locked is None:
        lines, in_place = _parted(recipe.lines)
    else:
        lines, in_place = [line for line in recipe.lines if is_of_torch(name_of(line) or "")], []
    record = (
        None
        if recipe.locked is None
        else record_path(cache, recipe.base.version, (lines, recipe.bounds, recipe.preferred))
    )
    wanted = Wanted(
        venv=entry,
        requirements=[_written(entry / "requirements.txt", lines)],
        constraints=_written(entry / "constraints.txt", (*recipe.held, *recipe.bounds)),
        held=[line.partition("==")[0] for line in recipe.held],
        wheels=recipe.wheels,
        preferred=_written(entry / "preferred.txt", recipe.preferred) if recipe.preferred else None,
    )
    settings: _Settings = {"environment": environment, "lock": lock}
    if lines and recipe.locked is not None and all(DIGEST in line for line in lines):
        report("environment: PyTorch by the digests of its requirements")
        by_digest = replace(wanted, hashed=True, preferred=None)
        install(installer, by_digest, report, **settings)
    elif lines:
        install_recorded(installer, wanted, record, report, **settings)
    if in_place:
        build_in_place(installer, wanted, in_place, report, **settings)
    if recipe.locked:
        _fill_by_lock(recipe.locked, wanted, installer, report, settings)


def _fill_by_lock(
    locked: Sequence[LockedPackage],
    wanted: Wanted,
    installer: Installer,
    report: Report,
    settings: _Settings,
) -> None:
    """Install exactly the files whose digests the lock names."""
    report(f"environment: {len(locked)} packages by the digests of the lock")
    lines, in_place = _parted([str(package) for package in locked])
    requirements = _written(wanted.venv / "locked.txt", lines)
    hashed = replace(wanted, requirements=[requirements], hashed=True, preferred=None)
    install(installer, hashed, report, **settings)
    if in_place:
        build_in_place(installer, hashed, in_place, report, **settings)


def _parted(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is installed as it is published, and what is built beside the PyTorch."""
    in_place = [line for line in lines if name_of(line) in BUILT_IN_PLACE]
    return [line for line in lines if line not in in_place], in_place


def _written(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def _verify_imports(
    imports: Callable[[], Mapping[str, str]],
    entry: Path,
    installer: Installer,
    environment: Mapping[str, str],
    report: Report,
) -> None:
    """See that what was installed can be imported; what breaks it needlessly is taken out.

    Raises:
        EnvironmentUnusableError: it can't.
    """
    broken = imports()
    spare = [name for name in DISPENSABLE if name in broken and _is_own(entry, name)]
    if spare:
        report(f"environment: {', '.join(spare)} can't be imported and isn't needed; taken out")
        uninstall(installer, entry, spare, report, environment=environment)
        broken = imports()
    for name, problem in broken.items():
        raise EnvironmentUnusableError(f"{name} can't be imported in {entry}: {problem}")


def _is_own(entry: Path, package: str) -> bool:
    """Whether it lies in the environment itself, not in one beneath."""
    return any((entry / "lib").glob(f"python3*/site-packages/{package}"))


def record_path(cache: Path, python: str, lines: Sequence[Sequence[str]]) -> Path:
    """Where the builds are recorded that a Python of this version got for these lines."""
    text = json.dumps([python, *map(list, lines)])
    return cache / "locks" / f"torch-{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"


def install_recorded(
    installer: Installer,
    wanted: Wanted,
    record: Path | None,
    report: Report,
    *,
    environment: Mapping[str, str],
    lock: int,
) -> None:
    """Install what is wanted by the digests on `record`; where that is missing, write it.

    uv reports no digests; what it installs is not recorded. `record` None: neither is done.

    Raises:
        EnvironmentUnusableError, EnvironmentUnavailableError: as `install` does.
    """
    if record is not None and record.exists():
        report(f"environment: PyTorch by the digests in {record}")
        again = replace(wanted, requirements=[record], preferred=None, hashed=True)
        install(installer, again, report, environment=environment, lock=lock)
        return
    listed = wanted.venv / "installed.json"
    first = replace(wanted, record=listed) if record is not None else wanted
    install(installer, first, report, environment=environment, lock=lock)
    installed = None if record is None else installed_packages(listed)
    if record is not None and installed:
        record.parent.mkdir(exist_ok=True)
        write_atomic(record, "".join(f"{package}\n" for package in installed).encode())
        report(f"environment: the digests of its files are recorded in {record}")
    elif record is not None:
        report(f"environment: {installer.kind} reports no digests of PyTorch's files; not recorded")


def installed_packages(listed: Path) -> list[LockedPackage] | None:
    """What pip's report names; None where one of the files has no digest."""
    try:
        items = decode_fields(listed.read_bytes(), listed.name, max_bytes=_MOST_BYTES)
        return [_package(item) for item in items.sections("install")]
    except (OSError, DecodingError, KeyError):
        return None


def _package(item: Fields) -> LockedPackage:
    metadata = item.section("metadata")
    archive = item.section("download_info").section("archive_info")
    # Before 23.1, pip gives `hash` alone for files of a folder.
    hashes = archive.find_section("hashes")
    digests = {} if hashes is None else hashes.values
    digest = digests.get("sha256") or archive.text("hash").removeprefix("sha256=")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise DecodingError("pip's report", "archive_info", "has no sha256")
    name = normalised(metadata.text("name"))
    return LockedPackage(f"{name}=={metadata.text('version')}", (digest,))
