"""Inspects a data set of a hub by its listing and the beginnings of some of its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from trainer_runtime.core.files.compression import (
    CompressedFileError,
    SourceFile,
    compressed_by,
    without_ending,
)
from trainer_runtime.core.files.corpus import TEXT
from trainer_runtime.core.inputs.hub_dataset import (
    DatasetAddress,
    NotInDatasetError,
    files_of_format,
    files_of_split,
)
from trainer_runtime.core.protocol.figures import size_text
from trainmaster.answers.data_inspection import InspectedSource
from trainmaster.calls.work_thread import in_thread
from trainmaster.home.scratch_folder import scratch_folder
from trainmaster.runs.data.inspect_source import Subject, inspect_source
from trainmaster.runs.planning.model_hub import Hub, HubDataset

_FORMATS = ("parquet", "jsonl", "arrow", TEXT)
# Of these a part can't be read: their descriptions stand at the end, or their rows take more.
_WHOLE, _LARGEST_WHOLE_BYTES = ("parquet", "arrow"), 16 << 20
_MOST_FILES, _BEGIN_BYTES, _MOST_PLAIN_BYTES = 4, 1 << 20, 8 << 20
_COMMIT = 12


@dataclass(frozen=True, slots=True)
class _Part:
    """The beginning of a file, as much as was fetched. `size_bytes`: of all of it."""

    name: str
    content: bytes
    size_bytes: int


async def inspect_hub(hub: Hub, address: DatasetAddress, subject: Subject) -> InspectedSource:
    """What the files of a split hold, by at most 16 MiB of them. Why there are none is among the
    problems.

    Raises:
        PlanError: `HUB_NOT_FOUND`, `HUB_GATED`, `HUB_UNREACHABLE`.
        PolicyError: `POLICY_ENDPOINT`.
    """
    source = InspectedSource(
        path=subject.shown_path, name=subject.name, held_out=subject.held_out or None
    )
    dataset = await hub.dataset(address.name, address.revision)
    sizes = dict(dataset.files)
    try:
        names = [name for name in files_of_split(sizes, dataset.configs, address) if sizes[name]]
        data_format, read = _main_format(names, sizes)
    except NotInDatasetError as error:
        return source.model_copy(update={"untrusted_problems": [str(error)]})
    listed = {
        "format": data_format,
        "files": _kinds(data_format, len(read), len(names) - len(read)),
        "size_bytes": sum(sizes[name] for name in names),
    }
    parts = [
        _Part(name, begun, sizes[name])
        for name in _chosen(read, sizes, data_format)
        for begun in [await hub.beginning(dataset, name, _most_bytes(data_format))]
    ]
    if not parts:
        notes = [_at(dataset), f"Its {data_format} files are over 16 MiB each: no rows were read."]
        return source.model_copy(update={**listed, "notes": notes})
    inspected, times = await in_thread(
        _inspected, parts, subject, {name: sizes[name] for name in read}
    )
    fetched = sum(len(part.content) for part in parts)
    shown = f"{_at(dataset)} Read: {size_text(fetched)} of {len(parts)} of {len(read):,} files."
    return inspected.model_copy(
        update={
            **listed,
            **_of_all(inspected, times),
            "notes": [shown, *(inspected.notes or ())],
        }
    )


def _main_format(names: Sequence[str], sizes: dict[str, int]) -> tuple[str, list[str]]:
    """The format that reads most bytes, and its files.

    Raises:
        NotInDatasetError: no format reads any.
    """
    by_format: dict[str, list[str]] = {}
    for data_format in _FORMATS:
        with suppress(NotInDatasetError):
            by_format[data_format] = files_of_format(names, data_format)
    if not by_format:
        files_of_format(names, TEXT)  # says what they are
    return max(by_format.items(), key=lambda entry: sum(sizes[name] for name in entry[1]))


def _kinds(data_format: str, count: int, others: int) -> dict[str, int]:
    return {data_format: count, **({"of other formats": others} if others else {})}


def _chosen(names: Sequence[str], sizes: dict[str, int], data_format: str) -> list[str]:
    """Some files, evenly; of those that are read as a whole the smallest, if it may be."""
    if data_format in _WHOLE:
        smallest = min(names, key=lambda name: sizes[name])
        return [smallest] if sizes[smallest] <= _LARGEST_WHOLE_BYTES else []
    return list(names[:: max(1, -(-len(names) // _MOST_FILES))])


def _most_bytes(data_format: str) -> int:
    return _LARGEST_WHOLE_BYTES if data_format in _WHOLE else _BEGIN_BYTES


def _at(dataset: HubDataset) -> str:
    return f"At commit {dataset.revision[:_COMMIT]} of the hub."


def _inspected(
    parts: Sequence[_Part], subject: Subject, sizes: Mapping[str, int]
) -> tuple[InspectedSource, float]:
    """By the rules for files of this machine; and how many times as much all files of these sizes
    hold, those that are compressed as much as the parts of such files."""
    plain, packed, total = Counter[bool](), Counter[bool](), Counter[bool]()
    for name, size in sizes.items():
        total[_is_packed(name)] += size
    with scratch_folder("trainmaster-hub-") as folder:
        for number, part in enumerate(parts):
            name = PurePosixPath(part.name).name
            written, read = _write(folder / (f"{number}-{name}" if number else name), part)
            plain[_is_packed(name)] += written
            packed[_is_packed(name)] += read
        inspection = inspect_source(replace(subject, path=folder))
        problems = [one.replace(f"{folder}/", "") for one in inspection.untrusted_problems or ()]
    shown = {"path": subject.shown_path, "untrusted_problems": problems or None}
    held = sum(total[kind] * plain[kind] / max(1, packed[kind]) for kind in total)
    return inspection.model_copy(update=shown), held / max(1, plain.total())


def _is_packed(name: str) -> bool:
    return without_ending(name) != name


def _write(file: Path, part: _Part) -> tuple[int, int]:
    """Write the whole lines of a part, decompressed where that can be done here; how many bytes
    these are, and of how many of the hub's."""
    file.write_bytes(part.content)
    text, read = part.content, len(part.content)
    if compressed_by(text) is not None:
        plain = bytearray()
        with suppress(CompressedFileError, ImportError), SourceFile(file) as opened:
            while len(plain) < _MOST_PLAIN_BYTES and (data := opened.text.read1()):
                plain, read = plain + data, opened.read_bytes
        if not plain:
            return len(text), read
        file.unlink()
        file, text = file.with_name(without_ending(file.name)), bytes(plain)
    if read < part.size_bytes:
        text = text[: text.rfind(b"\n") + 1] or text
    file.write_bytes(text)
    return len(text), read


def _of_all(inspected: InspectedSource, times: float) -> dict[str, object]:
    """The figures of all files by those of the parts, which are a `times`th of them."""
    if times <= 1:
        return {}
    rows = inspected.rows and round(inspected.rows * times)
    tokens = {name: round(count * times) for name, count in (inspected.tokens or {}).items()}
    return {"rows": rows, "rows_estimated": rows and True, "tokens": tokens or None}
