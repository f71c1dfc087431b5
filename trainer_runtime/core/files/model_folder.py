"""Reads a model's folder: its sizes, its number of parameters and the names of its matrices.

Only the config and the headers of the weights are read, so a model of any size takes milliseconds.
Nothing is ever unpickled. Client and host run this same code.
"""

from __future__ import annotations

import os
import pickletools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import (
    MAX_DOCUMENT_BYTES,
    DecodingError,
    Fields,
    JsonRecord,
    decode_fields,
    decode_value,
)
from trainer_runtime.core.decoding.limits import COUNTS_END
from trainer_runtime.core.files.regular import open_regular, read_regular
from trainer_runtime.core.files.tensor_header import HeaderError, TensorEntry, read_header
from trainer_runtime.core.files.torch_archive import read_record

HF, LITGPT = "hf", "litgpt"
CONFIG_NAME, ADAPTER_NAME, LITGPT_CONFIG_NAME = (
    "config.json",
    "adapter_config.json",
    "model_config.yaml",
)
_LITGPT_WEIGHTS = "lit_model.pth"
_WEIGHTS = (
    ("model.safetensors.index.json", "model.safetensors", ".safetensors"),
    ("pytorch_model.bin.index.json", "pytorch_model.bin", ".bin"),
)
# What travels with a model, or is fetched of it; folders below are other things (ONNX, originals),
# and so are the weights in their makers' own layout.
_WANTED = (".safetensors", ".json", ".model", ".txt", ".jinja", ".yaml", _LITGPT_WEIGHTS)
_OTHERS_LAYOUT = "consolidated"
_PICKLED = ("pytorch_model", ".bin")
# Of a file of torch.save; pickletools takes a microsecond for a byte.
_LARGEST_PICKLE_BYTES = 8 << 20
_LARGEST_YAML_BYTES = 1 << 20
_MOST_ELEMENTS_PER_BYTE = 8
_MATRIX = re.compile(r"(?:.*\.)?([^.]+)\.weight")
_MOST_MATRICES = 64
# What stands for the parts of a training's checkpoint.
_MODEL_KEYS = ("model", "model_state_dict", "state_dict", "module")
_OPTIMIZER_KEYS = ("optimizer", "optimizer_state_dict", "optimizer_states", "optim")
_TOP_LEVEL_SCALAR = re.compile(r"([A-Za-z_]\w*):[ \t]*([^\s#].*?)\s*$")
_NONE = "it holds no weights: neither *.safetensors nor pytorch_model.bin"
_MISSING, _UNUSABLE, _DAMAGED = "MODEL_NOT_FOUND", "MODEL_UNUSABLE", "MODEL_DAMAGED"


class _Problem(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _read_files(fields: Fields) -> tuple[tuple[str, int], ...]:
    rows = fields.rows("files", "name", "size")
    return tuple((row.text("name"), row.integer("size")) for row in rows)


@dataclass(frozen=True, slots=True)
class ModelFolder(JsonRecord):
    """`kind` is hf or litgpt; `config` what its config file says at the top; `parameters` counts
    the weights' elements, None where no header gives it; `matrices` are the last parts of the names
    of modules whose weight has two dimensions (linear layers and embeddings), empty where no header
    lists them or they are stored in another form; `files` are names and sizes of the model's files.
    `problem` (with an error's `code`) says why it can't be trained; with a `config`, that it holds
    no weights.
    """

    path: str
    kind: str = HF
    config: Mapping[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    weight_bytes: int = 0
    files: tuple[tuple[str, int], ...] = field(default=(), metadata={"read": _read_files})
    matrices: tuple[str, ...] = ()
    problem: str | None = None
    code: str | None = None


def read_model_folder(path: str) -> ModelFolder:
    """The model of a folder, or why it can't be trained; never raises."""
    folder = Path(path)
    try:
        files = _files(folder)
        names = {name for name, _ in files}
        if LITGPT_CONFIG_NAME in names or _LITGPT_WEIGHTS in names:
            return _litgpt(folder, files)
        return _hf(folder, files)
    except _Problem as error:
        return ModelFolder(path, problem=str(error), code=error.code)
    except OSError as error:
        problem = f"it can't be read ({error.strerror or error})"
        return ModelFolder(path, problem=problem, code=_MISSING)


def belongs(name: str, names: set[str]) -> bool:
    """Whether a file of a model's folder (`names` of all of them) is needed to train it: pickled
    weights only where there are no others."""
    if "/" in name or name.startswith((".", _OTHERS_LAYOUT)):
        return False
    if name.endswith(_WANTED):
        return True
    start, end = _PICKLED
    safe = any(other.endswith(".safetensors") for other in names)
    return name.startswith(start) and name.endswith(end) and not safe


def _files(folder: Path) -> tuple[tuple[str, int], ...]:
    if not folder.is_dir():
        reason = "it is not a folder" if folder.exists() else "there is nothing at this path"
        raise _Problem(_MISSING, reason)
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()}
    return tuple(sorted((name, size) for name, size in sizes.items() if belongs(name, set(sizes))))


def _hf(folder: Path, files: Sequence[tuple[str, int]]) -> ModelFolder:
    sizes = dict(files)
    if CONFIG_NAME not in sizes:
        if ADAPTER_NAME in sizes:
            base = _object(folder / ADAPTER_NAME).get("base_model_name_or_path")
            raise _Problem(
                _UNUSABLE,
                "it holds an adapter without the model that it belongs to"
                + (f", which is {base}" if isinstance(base, str) and base else ""),
            )
        raise _Problem(_UNUSABLE, "it has no config.json")
    config = _object(folder / CONFIG_NAME)
    if not isinstance(config.get("model_type"), str):
        inside = "; but the model in its folder `final` may be meant" * (folder / "final").is_dir()
        raise _Problem(_UNUSABLE, f"its config.json names no model_type{inside}")
    weights = _weights(folder, sizes)
    if not weights:
        return ModelFolder(
            str(folder), HF, config, files=tuple(files), problem=_NONE, code=_UNUSABLE
        )
    return ModelFolder(
        str(folder),
        HF,
        config,
        _parameters(folder, weights),
        sum(sizes[name] for name in weights),
        tuple(files),
        () if "quantization_config" in config else _matrices(folder, weights),
    )


def _litgpt(folder: Path, files: Sequence[tuple[str, int]]) -> ModelFolder:
    sizes = dict(files)
    for name in (LITGPT_CONFIG_NAME, _LITGPT_WEIGHTS):
        if name not in sizes:
            raise _Problem(_UNUSABLE, f"it has no {name}")
    text = read_regular(folder / LITGPT_CONFIG_NAME, _LARGEST_YAML_BYTES)
    if len(text) > _LARGEST_YAML_BYTES:
        raise _Problem(_DAMAGED, f"{LITGPT_CONFIG_NAME} is larger than any model's")
    config = _scalars(text.decode(errors="replace"))
    count = _parameters(folder, [_LITGPT_WEIGHTS])
    return ModelFolder(str(folder), LITGPT, config, count, sizes[_LITGPT_WEIGHTS], tuple(files))


def _weights(folder: Path, sizes: Mapping[str, int]) -> list[str]:
    """The names of the files that hold the weights; none where there are none."""
    for index, single, ending in _WEIGHTS:
        if index in sizes:
            named = _object(folder / index).get("weight_map")
            shards = sorted(
                {str(name) for name in named.values()} if isinstance(named, dict) else ()
            )
            missing = [name for name in shards if name not in sizes]
            if missing:
                raise _Problem(_DAMAGED, f"{index} names {missing[0]}, which is not there")
            if shards:
                return shards
        if single in sizes:
            return [single]
        if ending == ".safetensors" and (plain := _plain_shards(sizes, ending)):
            return plain
    return []


def _plain_shards(sizes: Mapping[str, int], ending: str) -> list[str]:
    return [name for name in sizes if name.endswith(ending) and not name.startswith("adapter_")]


def _parameters(folder: Path, weights: Sequence[str]) -> int | None:
    counts = [
        sum(entry.elements for entry in _tensors(folder / name))
        if name.endswith(".safetensors")
        else _pickled_elements(folder / name)
        for name in weights
    ]
    counted = [count for count in counts if count is not None]
    return sum(counted) if len(counted) == len(counts) else None


def _matrices(folder: Path, weights: Sequence[str]) -> tuple[str, ...]:
    if not all(name.endswith(".safetensors") for name in weights):
        return ()
    names = {
        match[1]: None
        for name in weights
        for tensor in _tensors(folder / name)
        if len(tensor.shape) == 2 and (match := _MATRIX.fullmatch(tensor.name)) is not None
    }
    return tuple(names) if len(names) <= _MOST_MATRICES else ()


def _tensors(file: Path) -> list[TensorEntry]:
    with open_regular(file) as opened:
        try:
            return read_header(opened.fileno())[1]
        except HeaderError as error:
            raise _Problem(_DAMAGED, f"{file.name} {error}") from None


def _pickled_elements(file: Path) -> int | None:
    """The elements of the model in a file of `torch.save`, which may hold its optimizer's beside
    them; never unpickled."""
    try:
        pickled = read_record(file, "/data.pkl", _LARGEST_PICKLE_BYTES)
        sizes = {} if pickled is None else _sizes_of_storages(pickled)
    except ValueError:
        raise _cut_off(file) from None
    elements = sum(sizes.values())
    if elements > file.stat().st_size * _MOST_ELEMENTS_PER_BYTE:
        raise _cut_off(file)
    return elements or None


def _sizes_of_storages(pickled: bytes) -> dict[str, int]:
    """The elements of each storage outside of an optimizer, by its name.

    A storage stands in a pickle as its type, name, device and number of elements; what comes again
    is only named by its number in the pickle's memo.
    """
    memo: dict[Any, Any] = {}
    latest: list[Any] = ["", "", 0]  # values, whose last two texts and number are a storage's
    sizes: dict[str, int] = {}
    counts = True
    for operation, argument, _ in pickletools.genops(pickled):
        name = operation.name
        if name in ("BINGET", "LONG_BINGET"):
            latest = [*latest[-2:], memo.get(argument)]
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = latest[-1]
        elif name == "BINPERSID":
            if counts and type(latest[-1]) is int and 0 <= latest[-1] < COUNTS_END:
                sizes[str(latest[-3])] = latest[-1]
        elif argument is not None:
            latest = [*latest[-2:], argument]
            counts = argument in _MODEL_KEYS or (counts and argument not in _OPTIMIZER_KEYS)
    return sizes


def _cut_off(file: Path) -> _Problem:
    return _Problem(_DAMAGED, f"{file.name} is cut off or damaged")


def _object(file: Path) -> dict[str, Any]:
    try:
        return dict(
            decode_fields(
                read_regular(file, MAX_DOCUMENT_BYTES), file.name, max_bytes=MAX_DOCUMENT_BYTES
            ).values
        )
    except DecodingError:
        raise _Problem(_DAMAGED, f"{file.name} is not a JSON object") from None


def _scalars(text: str) -> dict[str, Any]:
    """The plain values at the top of a YAML mapping, as LitGPT writes its models' configs."""
    values: dict[str, Any] = {}
    for line in text.splitlines():
        match = _TOP_LEVEL_SCALAR.match(line)
        if match is None:
            continue
        name, value = match.groups()
        try:
            values[name] = decode_value(value, LITGPT_CONFIG_NAME)
        except ValueError:
            values[name] = None if value in ("null", "~") else value.strip("'\"")
    return values
