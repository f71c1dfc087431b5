"""Renders the bundle of a spec into a folder of this machine, to be read or run by hand."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from trainer_runtime.core.config.tokenizer_training import FOLDER
from trainer_runtime.core.files.corpus import (
    ON_BOX,
    SHARDS,
    Source,
    content_digests,
    fingerprint,
    list_files,
)
from trainer_runtime.core.files.model_folder import read_model_folder
from trainer_runtime.core.files.private import share
from trainer_runtime.core.files.tokenizer_folder import tokenizer_files
from trainer_runtime.core.files.unlinked import read_unlinked
from trainer_runtime.core.inputs.hub_dataset import PREFIX as HUB
from trainer_runtime.core.inputs.object_store import BEGINNINGS as STORES
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.figures import size_text
from trainmaster.answers.runs import RenderAnswer
from trainmaster.backends import LOCAL
from trainmaster.errors.errors import StorageError, UsageError
from trainmaster.home.assets import find_assets
from trainmaster.home.paths import Home
from trainmaster.plan.decisions.tokenizer import NONE
from trainmaster.plan.facts import CodeFacts, FolderFacts, ProgramData
from trainmaster.plan.planned import Planned, refuse_unlaunchable
from trainmaster.plan.render import Bundle, render
from trainmaster.runs.planning import plan_run
from trainmaster.runs.planning.program_data import travelling
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.file_set import file_set

# What is copied without a question; a larger corpus or model stays where it is.
MOST_BYTES = 4 << 30
_CACHE = "cache"
_PROGRAM = "program"


async def render_spec(
    workspace: Workspace,
    spec: str,
    folder: Path,
    *,
    host: str | None = None,
    sets: Sequence[str] = (),
    most_bytes: int = MOST_BYTES,
) -> RenderAnswer:
    """Plan a spec as a launch would, and write what would be placed on the host into `folder`,
    which must not exist or be empty, with its data and models, unless one has more than
    `most_bytes`. The run's id is the spec's name.

    Raises:
        UsageError: `BAD_ARGUMENT`, the folder holds something.
        StorageError: `ROOT_NOT_WRITABLE`, the folder can't be written.
        TrainmasterError: the launch is impossible.
    """
    refuse_full(folder)
    planned = await plan_run.plan_spec(workspace, spec, host, sets)
    refuse_unlaunchable(planned)
    refuse_several_machines(planned.config)
    written = write_bundle(workspace.home, planned, folder, most_bytes=most_bytes)
    elsewhere = "" if written.warnings else ", on this machine or where the folder is copied to"
    step = (
        "Read train.py, and training_config.yaml for the reason of each value. `cd "
        f"{quote(str(folder))} && sh train.sh` trains there{elsewhere}; "
        f"{command('launch', 'SPEC')} starts the same under supervision."
    )
    warnings = [*(written.warnings or ()), *planned.plan.warnings]
    return written.model_copy(update={"warnings": warnings or None, "next_step": step})


def refuse_full(folder: Path) -> None:
    """Raises: UsageError: `BAD_ARGUMENT`, the folder holds something."""
    if folder.is_symlink() or folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{folder} exists and is not an empty folder.",
            "Name a new folder: nothing is replaced.",
            field="folder",
        )


def write_bundle(
    home: Home,
    planned: Planned,
    folder: Path,
    more: Mapping[str, str] | None = None,
    *,
    most_bytes: int = MOST_BYTES,
) -> RenderAnswer:
    """Write a planned run's bundle with its inputs; `more`: texts of further files by their name.
    The answer warns of what keeps the folder from training elsewhere.

    Raises:
        StorageError: `ROOT_NOT_WRITABLE`, the folder can't be written.
    """
    try:
        inputs = portable(planned, home, most_bytes=most_bytes)
        attached = {**planned.attached, **(more or {})}
        plan = planned.plan.model_copy(update={"config": inputs.config, "attached": attached})
        bundle = render(plan, planned.spec.name, find_assets())
        _write(bundle, inputs, folder)
    except OSError as error:
        raise StorageError(
            "ROOT_NOT_WRITABLE",
            f"{folder} can't be written: {error.strerror}.",
            "Name a folder that can be made, on a disk with room.",
            field="folder",
        ) from error
    return RenderAnswer(
        name=planned.spec.name,
        folder=str(folder),
        files=sorted({path.partition("/")[0] for path in (*bundle.files, *inputs.copies)}),
        warnings=inputs.warnings or None,
        next_step="",
    )


def refuse_several_machines(config: Mapping[str, Any]) -> None:
    """Raises: UsageError: `UNSUPPORTED`, the spec asks for several."""
    if int(config["compute"].get("nodes") or 1) > 1:
        raise UsageError(
            "UNSUPPORTED",
            "A rendered folder trains on one machine, but the spec asks for several.",
            f"Name one host ({option('--host', 'NAME')}) and leave compute.nodes out, "
            "or launch the spec.",
            field="host",
        )


def _write(bundle: Bundle, inputs: Portable, folder: Path) -> None:
    """All files, or no folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for path, content in bundle.files.items():
            target = part / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        copy_inputs(inputs, part)
        for place in (part, *part.rglob("*")):
            share(place)
        for path in bundle.executable:
            (part / path).chmod((part / path).stat().st_mode | stat.S_IXUSR)
        os.rename(part, folder)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        raise


@dataclass(slots=True)
class Portable:
    """`config`: with paths relative to the folder. `copies`: real paths of this machine by their
    place in the folder. `warnings`: what keeps it from training elsewhere. A corpus or model of
    more than `most_bytes` stays where it is."""

    config: dict[str, Any]
    most_bytes: int
    copies: dict[str, Path] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def portable(planned: Planned, home: Home, *, most_bytes: int = MOST_BYTES) -> Portable:
    """The config of a folder that holds its inputs, as far as they lie on this machine. `home`:
    whose keys stay.

    What the hub has is downloaded into the folder's own cache when it prepares.

    Raises:
        OSError: a file of the data can't be read.
    """
    config = _with_cache(deepcopy(planned.config), planned.facts.cache_folder)
    bundle = Portable(config, most_bytes)
    if planned.code is not None:
        _take_program(planned, planned.code, bundle, home)
        return bundle
    _take_sources(planned, bundle)
    for what, facts in (("model", planned.model), ("tokenizer", planned.tokenizer)):
        if facts is not None and facts.path not in (None, NONE):
            _take_folder(planned, what, facts, bundle)
    return bundle


def copy_inputs(bundle: Portable, folder: Path) -> None:
    """Raises: OSError: a file can't be read, or `folder` can't take it."""
    for place, path in bundle.copies.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        with read_unlinked(path) as original, target.open("wb") as copy:
            shutil.copyfileobj(original, copy)


def _take_sources(planned: Planned, bundle: Portable) -> None:
    data = bundle.config["data"]
    listed = {name: path for name, path in _sources(planned) if path is not None}
    size = sum(source_facts.size_bytes for source_facts in planned.corpus.sources)
    entries = [*data["sources"], *data["validation"]]
    if len(listed) < len(entries):
        fetched = [facts for facts in planned.corpus.sources if facts.fetched is not None]
        place = fetched[0].path if fetched else planned.spec.host
        bundle.warnings.append(_left("data", f"is on {place}"))
        return
    is_sent = data.pop("upload", None) is not None
    if is_sent and data["prepare"] == "here":
        data["prepare"] = "box"
    if size > bundle.most_bytes:
        bundle.warnings.append(_left("data", f"has {size_text(size)}"))
        for entry in entries:
            entry["path"] = str(listed[entry["name"]])
        return
    sources: list[Source] = []
    digests: dict[tuple[str, str], str] = {}
    held_out = [entry["name"] for entry in data["validation"]]
    for entry in entries:
        path = listed[entry["name"]]
        files = list_files(path, entry["format"])
        place = f"data/{entry['name']}" + ("" if path.is_dir() else f"/{path.name}")
        name = entry["name"]
        source = Source(name, place, files, entry["format"], name in held_out)
        inside = {file.name: path / file.name if path.is_dir() else path for file in files}
        digests |= content_digests(source, inside)
        for file in files:
            bundle.copies[f"data/{entry['name']}/{file.name}"] = inside[file.name].resolve()
        entry["path"] = place
        sources.append(source)
    tokenizer = data.get("tokenizer_digest") or data["tokenizer"]
    data["by_content"] = True
    data["fingerprint"] = fingerprint(
        sources,
        tokenizer,
        data["seq_len"],
        data.get("form") or SHARDS,
        digests=digests,
        bad_rows=data["bad_rows"],
        filters=data.get("filters"),
    )
    if data.get("tokenizer_training"):
        data["tokenizer"] = f"{data['cache_dir']}/data/{data['fingerprint']}/{FOLDER}"


def _take_program(planned: Planned, code: CodeFacts, bundle: Portable, home: Home) -> None:
    bundle.config.pop("inputs", None)  # no upload is awaited by hand
    for data in code.data:
        _take_data(planned, data, bundle, home)
    if code.in_place:
        bundle.warnings.append(_left("program", "is a folder of the host"))
        return
    there = file_set(Path(str(code.path)), home, [name for name, _ in code.files])
    bundle.copies |= {f"{_PROGRAM}/{file.name}": Path(file.real) for file in there.files}
    bundle.config["script"]["source"] = _PROGRAM


def _take_data(planned: Planned, data: ProgramData, bundle: Portable, home: Home) -> None:
    if not _is_here(planned, str(data.path)):
        bundle.warnings.append(_left(f"data {data.name}", f"is on {planned.spec.host}"))
        return
    path = Path(str(data.path).removeprefix(ON_BOX), data.file or "")
    files = travelling(path, home)
    place = f"data/{data.name}"
    if files.size_bytes > bundle.most_bytes:
        bundle.warnings.append(_left(f"data {data.name}", f"has {size_text(files.size_bytes)}"))
        place = str(path.parent if path.is_file() else path)
    else:
        bundle.copies |= {f"{place}/{file.name}": Path(file.real) for file in files.files}
    bundle.config["script"]["data"][data.name] = f"{place}/{path.name}" if path.is_file() else place


def _take_folder(planned: Planned, what: str, facts: FolderFacts, bundle: Portable) -> None:
    path = str(facts.path)
    if not _is_here(planned, path):
        bundle.warnings.append(_left(what, f"is on {planned.spec.host}"))
        return
    folder = Path(path.removeprefix(ON_BOX))
    is_model = what == "model"
    names = (
        [name for name, _ in read_model_folder(str(folder)).files]
        if is_model
        else tokenizer_files(str(folder))
    )
    size = sum((folder / name).stat().st_size for name in names)
    if size > bundle.most_bytes:
        bundle.warnings.append(_left(what, f"has {size_text(size)}"))
        place = str(folder)
    else:
        place = f"inputs/{what}/{folder.name}"  # for LitGPT the folder's name is the model's
        bundle.copies |= {f"{place}/{name}": (folder / name).resolve() for name in names}
    config = bundle.config
    used = facts.folder(_CACHE)
    if is_model and "path" in config["model"]:
        config["model"]["path"] = place
    if config["data"]["tokenizer"] == used:
        config["data"]["tokenizer"] = place
    inputs = [entry for entry in config.pop("inputs", ()) if entry["what"] != what]
    if inputs:
        config["inputs"] = inputs


def _sources(planned: Planned) -> Iterator[tuple[str, Path | None]]:
    """Where each source lies on this machine."""
    uploaded = planned.config["data"].get("upload", {}).get("sources", {})
    data = planned.config["data"]
    for source in (*data["sources"], *data["validation"]):
        path_given = next(
            facts for facts in planned.corpus.sources if facts.name == source["name"]
        ).path
        path = uploaded.get(source["name"], path_given)
        yield source["name"], Path(path.removeprefix(ON_BOX)) if _is_here(planned, path) else None


def _is_here(planned: Planned, path: str) -> bool:
    if path.startswith((HUB, *STORES)):
        return False
    return planned.spec.host == LOCAL or not path.startswith(ON_BOX)


def _left(what: str, reason: str) -> str:
    return f"The {what} {reason} and is not in the folder: it is read where it is."


def _with_cache(value: Any, cache: str) -> Any:
    """The document with a cache below the folder instead of the host's."""
    if isinstance(value, dict):
        return {name: _with_cache(part, cache) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_cache(part, cache) for part in value]
    if isinstance(value, str) and (value == cache or value.startswith(f"{cache}/")):
        return _CACHE + value[len(cache) :]
    return value
