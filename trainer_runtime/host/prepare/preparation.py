"""Prepares an attempt: setup script, environment, model, adopted checkpoint, data.

`python3 -m trainer_runtime prepare CONFIG`, in the run's folder. One at a time per run; whatever is
done is not done again, so that it may be killed at any moment and started again.

`code.json` of the run's folder lists the files. What is there already is left alone: the program
has written into its folder since.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, Fields, decode_fields
from trainer_runtime.core.files.corpus import ROWS, SHARDS
from trainer_runtime.core.files.manifest import MANIFEST_NAME
from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.host.containers.container import Container
from trainer_runtime.host.environment.environment import Box, required_lines, settle
from trainer_runtime.host.environment.image import find_image
from trainer_runtime.host.environment.image_trial import ImageRequest, settle_image
from trainer_runtime.host.environment.installers import (
    EnvironmentUnavailableError,
    EnvironmentUnusableError,
)
from trainer_runtime.host.environment.training_python import (
    InputUnavailableError,
    InputUnusableError,
    TrainingPython,
)
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.resolved_environment import Changes, applied
from trainer_runtime.host.prepare import cache_roots
from trainer_runtime.host.prepare.data_card import write_card
from trainer_runtime.host.prepare.inputs import settle_inputs
from trainer_runtime.host.prepare.settled_python import ENVIRONMENT, settled_python
from trainer_runtime.host.prepare.shards import prepare
from trainer_runtime.host.prepare.sources import DataUnusableError, await_listed
from trainer_runtime.host.prepare.store_mirror import settle_mirror
from trainer_runtime.host.prepare.uploads import NothingComesError, await_wheels
from trainer_runtime.host.processes.commands import Report, follow
from trainer_runtime.host.processes.hold import marked

# $1 and $2: files for the environment before and after. Modules write to stdout as they like, and
# some versions of `module` fail with exit code 0, so what they say counts as well.
_SCRIPT = """
before=$1 after=$2
shift 2
for init in "${MODULESHOME:-/nowhere}/init/bash" /etc/profile.d/modules.sh \\
    /etc/profile.d/lmod.sh /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash; do
    type module >/dev/null 2>&1 && break
    [ -r "$init" ] && . "$init"
done
if ! type module >/dev/null 2>&1; then
    echo "this machine has no 'module' command"
    exit 90
fi
env -0 > "$before"
for name in "$@"; do
    said=$(module load "$name" 2>&1) || { echo "$said"; echo "module load $name failed"; exit 91; }
    module load "$name" || exit 91
    case $said in
        *ERROR* | *"Unable to locate"* | *"are unknown"*)
            echo "$said"; echo "module load $name failed"; exit 91 ;;
    esac
done
env -0 > "$after"
"""
# The shell's own, and what would make every later shell run code.
_LEFT_OUT = re.compile(r"(SHLVL|PWD|OLDPWD|_|BASH_FUNC_.*|BASH_ENV|ENV|PROMPT_COMMAND)\Z")
_LABEL = "adopt"
_TAKES_OVER = "trainer_runtime.train.foreign.take_over"
LISTING = "code.json"
_DONE = ".code.complete"
_PIECE_BYTES = 1 << 20
SETUP = "setup.sh"
_LOCK = ".preparation.lock"
_RETRY = 1


class NotAdoptedError(Exception):
    """The checkpoint can't be taken over; a retry would end the same way."""


class NotAdoptedYetError(Exception):
    """Something stood in the way that may be gone later, such as a full disk."""


def take_over(
    config: RunConfig, path: Path, run: Path, python: TrainingPython, report: Report
) -> None:
    """Bring the checkpoint that the config's `adopt` names among the run's, unless it is there.

    `path`: the config's. It is read and written by `python`, the interpreter that is to train.

    Raises:
        NotAdoptedError: it is not what it was when the run was made, or can't be read.
        NotAdoptedYetError: it could not be brought just now.
    """
    if not _is_due(config, run):
        return
    command, environment = python.command(["-m", _TAKES_OVER, str(path)], {})
    ended = follow(command, report, label=_LABEL, folder=run, environment=environment)
    if ended.code == ExitCode.UNUSABLE:
        raise NotAdoptedError(ended.last_words)
    if ended.code != 0:
        raise NotAdoptedYetError(f"the checkpoint was not taken over: {ended.last_words}")


def _is_due(config: RunConfig, run: Path) -> bool:
    adopted, attempt = config.adopt, config.attempt
    if adopted is None:
        return False
    if not attempt.has_resume:  # by hand: from the newest checkpoint there is
        return not any((run / "checkpoints").glob("step-*"))
    step = adopted.step
    if step not in (attempt.resume.candidates or ()):
        return False
    is_there = (run / f"checkpoints/step-{step:08d}" / MANIFEST_NAME).exists()
    return not (is_there and any((run / "attempts").glob("*/events.jsonl")))


class CodeUnusableError(Exception):
    """The program is not what was planned, or not there; a retry would end the same way."""


def place_code(config: RunConfig, run: Path, report: Report) -> None:
    """Copy the program's folder, unless an earlier attempt has; may be repeated.

    Raises:
        CodeUnusableError: a file is missing or differs, or the folder of the host is not there.
        OSError: it can't be written.
    """
    script = config.script
    if script is None or (run / _DONE).exists():
        return
    if script.source is None:
        if not (run / script.folder).is_dir():
            raise CodeUnusableError(f"the folder {script.folder} is not on this host")
        return
    report(f"code: copying {script.source}")
    source, target = Path(script.source), run / script.folder
    listing = decode_fields((run / LISTING).read_bytes(), LISTING, max_bytes=MAX_DOCUMENT_BYTES)
    target.mkdir(exist_ok=True)
    for row in listing.rows("files", "name", "size_bytes", "sha256", "executable"):
        _copy(source, target, row)
    (run / _DONE).touch()


def _copy(source: Path, target: Path, row: Fields) -> None:
    name, place = row.text("name"), target / row.text("name")
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise CodeUnusableError(f"{LISTING} names {name!r}, which is not inside the folder")
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.part")
    digest = hashlib.sha256()
    try:
        with open_regular(source / name) as original, part.open("wb") as copy:
            while data := original.read(_PIECE_BYTES):
                digest.update(data)
                copy.write(data)
    except FileNotFoundError:
        raise CodeUnusableError(
            f"{name} is missing: it was there when the run was planned"
        ) from None
    if digest.hexdigest() != row.text("sha256"):
        part.unlink()
        raise CodeUnusableError(f"{name} changed since the run was planned; launch again")
    if row.flag("executable"):
        part.chmod(part.stat().st_mode | 0o100)
    part.replace(place)


_UNUSABLE = (
    CodeUnusableError,
    DataUnusableError,
    EnvironmentUnusableError,
    InputUnusableError,
    NothingComesError,
    NotAdoptedError,
)
_NOT_NOW = (EnvironmentUnavailableError, InputUnavailableError, NotAdoptedYetError)


def main(config_path: str, *, data_only: bool = False) -> int:
    """Prepare what a config asks for; progress goes to stdout. The exit code.

    `data_only` leaves the environment to the caller.
    """
    path = Path(config_path)
    try:
        config = RunConfig.parse(path.read_bytes(), str(path))
        with _locked(Path.cwd() / _LOCK):
            if not data_only:
                _register(Path.cwd(), config)
                _prepare_environment(config, path, _say)
            python = TrainingPython(sys.executable) if data_only else _python(config, path)
            settle_inputs(config, _say, python)
            place_code(config, Path.cwd(), _say)
            take_over(config, path, Path.cwd(), python, _say)
            settle_mirror(config, Path.cwd(), _say, python)
            ready = _prepare_data(config, python)
            if config.script is None and not data_only:
                write_card(config, Path.cwd())
    except (OSError, ValueError) as error:
        return _failed(f"{config_path} can't be prepared: {error}", ExitCode.UNUSABLE)
    except _UNUSABLE as error:
        return _failed(str(error), ExitCode.UNUSABLE)
    except _NOT_NOW as error:
        return _failed(f"{error}; it may work later", _RETRY)
    _say(f"data: ready in {ready}")
    return 0


def _python(config: RunConfig, path: Path) -> TrainingPython:
    return settled_python(config, path, Path.cwd(), marked(config))


def _prepare_data(config: RunConfig, python: TrainingPython) -> str:
    """What the trainer reads, made first where need be; where that is.

    Raises:
        DataUnusableError, InputUnusableError: it can't be trained on.
        InputUnavailableError: not now.
    """
    if config.script is not None:
        return config.script.folder
    form = config.data.form or SHARDS
    if form == SHARDS:
        return str(prepare(config, _say, python))
    await_listed(config, _say)
    if form == ROWS:
        _say("data: reading the rows")
        python.run("prepare_rows", config.document, _say)
    return ", ".join(source.path for source in config.data.inputs)


def _say(line: str) -> None:
    print(line, flush=True)


def _failed(what: str, code: int) -> int:
    print(f"prepare: {what}", file=sys.stderr, flush=True)
    return code


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One preparation of a run at a time: a supervisor that was killed leaves its own running."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _register(folder: Path, config: RunConfig) -> None:
    """Have the cache know of the root that the run lies in; one that is only read needs no care."""
    with suppress(OSError):
        cache_roots.register(Path(config.data.cache_dir), RunFolder(folder).runs)


def _prepare_environment(config: RunConfig, path: Path, report: Report) -> None:
    """Write `environment.json` beside the config: the interpreter that is to train and what its
    environment needs."""
    request, record = config.environment, path.with_name(ENVIRONMENT)
    if config.attempt.is_recorded and _is_settled(record):
        return
    if config.compute.is_contained:
        _prepare_image(config, path, report)
        return
    if request is None:
        return
    folder = Path.cwd()
    variables = {**os.environ, **config.env, **marked(config)}
    if request.setup:
        _run_setup(folder, variables, report)
    changes: dict[str, str | None] = {}
    if request.modules:
        changes = load_modules(request.modules, variables, folder, report)
        variables = applied(variables, changes)
    if request.wheels_from is not None:
        await_wheels(config, report)
    box = Box(
        folder=folder,
        cache=Path(config.data.cache_dir).absolute(),  # an installer works elsewhere
        device=config.compute.device,
        variables=variables,
        report=report,
    )
    report("environment: searching for a usable one")
    settled = settle(request, box)
    write_json(record, {**settled, "variables": changes})
    report(f"environment: ready, {settled['python']} ({settled['how']})")


def _prepare_image(config: RunConfig, path: Path, report: Report) -> None:
    folder, request = Path.cwd(), config.environment
    image = find_image(config.compute.image or "", folder, report)
    lines = [] if request is None else required_lines(request, folder)
    cache = Path(config.data.cache_dir)
    container = Container(image, Path.cwd(), config, path, marked(config))
    asked = ImageRequest(container, lines, cache, report)
    settled = settle_image(asked)
    write_json(path.with_name(ENVIRONMENT), {**settled, "variables": {}})
    report(f"environment: ready, {settled['python']} ({settled['how']})")


def _is_settled(record: Path) -> bool:
    """Whether an earlier preparation of the same attempt came as far as this."""
    settled = read_json(record)
    if settled is None:
        return False
    return "container" in settled or os.access(str(settled.get("python")), os.X_OK)


def _run_setup(folder: Path, variables: Mapping[str, str], report: Report) -> None:
    if not (folder / SETUP).is_file():
        raise EnvironmentUnusableError(f"the run's folder has no {SETUP}")
    report("setup: running setup.sh")
    ended = follow(["sh", SETUP], report, label="setup", folder=folder, environment=variables)
    if ended.code != 0:
        raise EnvironmentUnusableError(
            f"environment.setup ended with {ended.code}: {ended.last_words}"
        )


def load_modules(
    names: Sequence[str], environment: Mapping[str, str], folder: Path, report: Report
) -> Changes:
    """What loading these modules changes in the environment; None for what it removes.

    Raises:
        EnvironmentUnusableError: there is no `module` or no such module, or loading it fails.
    """
    with tempfile.TemporaryDirectory(prefix="trainmaster-") as place:
        before, after = Path(place) / "before", Path(place) / "after"
        command = ["bash", "-lc", _SCRIPT, "bash", str(before), str(after), *names]
        try:
            ended = follow(command, report, label="modules", folder=folder, environment=environment)
        except OSError as error:
            raise EnvironmentUnusableError(f"modules need bash: {error.strerror}") from None
        if ended.code != 0:
            reason = "; ".join(ended.lines[-3:]) or f"exit code {ended.code}"
            raise EnvironmentUnusableError(f"environment.modules: {reason}")
        return _changes(_read(before), _read(after))


def _read(path: Path) -> dict[str, str]:
    entries = path.read_bytes().decode(errors="surrogateescape").split("\0")
    pairs = [entry.partition("=") for entry in entries if "=" in entry]
    return {name: value for name, _, value in pairs if not _LEFT_OUT.match(name)}


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Changes:
    changes: Changes = {name: value for name, value in after.items() if before.get(name) != value}
    changes.update({name: None for name in before if name not in after})
    return changes
