"""Rows for trainers that read datasets: every source by `datasets`, split and mixed.

The same config gives the same rows in the same order, in every process and after every restart.
What `datasets` makes of the files is cached beside the shards of other trainings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy

from trainer_runtime.core.files.corpus import SHARD_FORMATS, VALIDATION_SHARE, list_files
from trainer_runtime.core.inputs.bad_rows import BadRows, noted_folder
from trainer_runtime.core.inputs.row_form import rows_of
from trainer_runtime.core.inputs.shard_rows import shard_rows
from trainer_runtime.train.attempt.config import ConfigError, RunConfig, SourceConfig
from trainer_runtime.train.data.bad_rows import (
    good_files,
    good_rows,
    leave_out_of_lines,
    leave_out_of_rows,
)

if TYPE_CHECKING:
    import datasets

Rows = Union["datasets.Dataset", "datasets.DatasetDict"]

_HELD_OUT = ("validation", "test")
_BUILDERS = {"text": "text", "jsonl": "json", "parquet": "parquet", "arrow": "arrow"}


def load_rows(config: RunConfig) -> tuple[datasets.Dataset, dict[str, datasets.Dataset]]:
    """The rows to train on, and those held out by source.

    Text gives `text`, a row for each paragraph; the other formats give their columns as they are.
    Of each source every twentieth row is held out, unless a saved `DatasetDict` brings its own
    `validation` or `test`, or `data.validation` names files for it. Sources are mixed by weight:
    whichever is furthest behind its share comes next, until each was read at least once; smaller
    ones repeat. Columns that not every source has are left out.

    Raises:
        ConfigError: a source can't be read, or holds no rows to train on and to hold out.
    """
    data, mixed = config.data, not config.phases  # else a source after another
    training, held_out = [], {}
    for source in data.sources:
        rows = _good(source, config)
        if data.validation:
            training.append(_all_of(rows, source.name, ("train",)))
        else:
            train, held_out[source.name] = _split(rows, source.name)
            training.append(train)
    for source in data.validation:
        held_out[source.name] = _all_of(_good(source, config), source.name, _HELD_OUT)
    if len(training) == 1:
        return training[0], held_out
    columns = _shared_columns(training, [source.name for source in data.sources])
    if not data.validation:
        held_out = {name: rows.select_columns(columns) for name, rows in held_out.items()}
    weights = [source.weight for source in data.sources]
    selected = [rows.select_columns(columns) for rows in training]
    return _mixed(selected, weights) if mixed else _joined(selected), held_out


def rows_by_source(config: RunConfig) -> list[int]:
    """How many rows of each source are trained on."""
    return [len(_training_of(source, config)) for source in config.data.sources]


def _training_of(source: SourceConfig, config: RunConfig) -> datasets.Dataset:
    rows = _good(source, config)
    if config.data.validation:
        return _all_of(rows, source.name, ("train",))
    return _split(rows, source.name)[0]


def leave_out_bad(source: SourceConfig, config: RunConfig) -> BadRows | None:
    """Note a source's bad rows for those who load it; how many of its rows are bad. None of text,
    of which every paragraph is good.

    Raises:
        ConfigError: it can't be read, or has more of them than `data.bad_rows`.
    """
    kind, share = rows_of(config.framework, config.method), config.data.bad_rows
    folder = _noted(source, config)
    try:
        if source.format == "text":
            return None
        files = [] if source.format in ("hf", *SHARD_FORMATS) else files_of(source)
        if files and _builder(source, files) == "json":
            return leave_out_of_lines(files, kind, folder, share)
        rows = _load(source, config.data.folder)
        splits = rows if hasattr(rows, "keys") else {"": rows}
        return leave_out_of_rows(splits, source.path, kind, folder, share)
    except (OSError, ValueError) as error:
        raise ConfigError(f"data source {source.name}: {error}") from None


def _good(source: SourceConfig, config: RunConfig) -> Rows:
    """A source's rows, without what the preparation left out."""
    import datasets

    folder = _noted(source, config)
    rows = _load(source, config.data.folder, good_files(folder))
    if isinstance(rows, datasets.DatasetDict):
        good = {split: good_rows(folder, split, part) for split, part in rows.items()}
        return datasets.DatasetDict(good)
    return good_rows(folder, "", rows)


def _noted(source: SourceConfig, config: RunConfig) -> Path:
    return noted_folder(config) / source.name


def _load(source: SourceConfig, cache: Path, good_files: Sequence[str] = ()) -> Rows:
    import datasets

    path, name = Path(source.path), source.name
    try:
        if source.format == "hf":
            return datasets.load_from_disk(str(path))
        files = list(good_files) or files_of(source)
        if source.format in SHARD_FORMATS:
            given = {"files": files, "data_format": source.format}
            make = datasets.Dataset.from_generator
            return make(_rows_of_shards, gen_kwargs=given, cache_dir=str(cache))
        builder = _builder(source, files)
        load = partial(datasets.load_dataset, builder, cache_dir=str(cache), split="train")
        if builder == "text":
            return load(data_files=files, sample_by="paragraph")
        return load(data_files=files)
    except (OSError, ValueError, TypeError, datasets.exceptions.DatasetsError) as error:
        raise ConfigError(f"data source {name}: {path} can't be read: {_cause(error)}") from None


def saved_rows(source: SourceConfig) -> datasets.Dataset:
    """The rows to train on of a folder that `save_to_disk` wrote, or those to evaluate of a
    validation's.

    Raises:
        ConfigError: they can't be read, or are none.
    """
    import datasets

    try:
        rows = datasets.load_from_disk(source.path)
    except (OSError, ValueError, TypeError, datasets.exceptions.DatasetsError) as error:
        name, path = source.name, source.path
        raise ConfigError(f"data source {name}: {path} can't be read: {_cause(error)}") from None
    return _all_of(rows, source.name, _HELD_OUT if source.held_out else ("train",))


def _rows_of_shards(files: Sequence[str], data_format: str) -> Iterator[Mapping[str, Any]]:
    for file in files:
        yield from shard_rows(Path(file), data_format)


def files_of(source: SourceConfig) -> list[str]:
    """A source's files of its format.

    Raises:
        ConfigError: there are none.
        OSError: they can't be listed.
    """
    path, data_format = Path(source.path), source.format
    if not path.is_dir():
        return [str(path)]
    files = [str(path / file.name) for file in list_files(path, data_format)]
    if not files:
        raise ConfigError(f"data source {source.name}: no {data_format} files in {path}")
    return files


def _builder(source: SourceConfig, files: Sequence[str]) -> str:
    """By the names of files where a format may be stored in more than one way."""
    if source.format in _BUILDERS:
        return _BUILDERS[source.format]
    parquet = [file.endswith(".parquet") for file in files]
    if any(parquet) and not all(parquet):
        raise ConfigError(
            f"data source {source.name} mixes Parquet with JSON lines; make two of it"
        )
    return "parquet" if parquet[0] else "json"


def _cause(error: BaseException) -> str:
    """The innermost words: what `datasets` says itself is only that something went wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _all_of(rows: Rows, name: str, splits: Sequence[str]) -> datasets.Dataset:
    """All rows, of a saved `DatasetDict` those of the first of these splits that it has."""
    import datasets

    if isinstance(rows, datasets.DatasetDict):
        split_there = next((split for split in splits if split in rows), None)
        if split_there is None:
            wanted = " or ".join(splits)
            raise ConfigError(f"data source {name} holds {', '.join(rows)}, but no {wanted} split")
        rows = rows[split_there]
    if not len(rows):
        raise ConfigError(f"data source {name} holds no rows")
    return rows


def _split(rows: Rows, name: str) -> tuple[datasets.Dataset, datasets.Dataset]:
    import datasets

    if isinstance(rows, datasets.DatasetDict):
        _train_split(rows, name)
        own = next((rows[split] for split in _HELD_OUT if split in rows), None)
        if own is not None and len(own) and len(rows["train"]):
            return rows["train"], own
        rows = rows["train"]
    count = len(rows)
    if count < 2:
        raise ConfigError(f"data source {name} holds {count} rows; it takes 2, one to hold out")
    held = max(1, int(count * VALIDATION_SHARE))
    is_held = numpy.zeros(count, dtype=bool)
    is_held[(numpy.arange(held) * 2 + 1) * count // (2 * held)] = True
    return rows.select(numpy.flatnonzero(~is_held)), rows.select(numpy.flatnonzero(is_held))


def _train_split(rows: datasets.DatasetDict, name: str) -> datasets.Dataset:
    if "train" not in rows:
        raise ConfigError(f"data source {name} holds {', '.join(rows)}, but no train split")
    return rows["train"]


def _shared_columns(sources: Sequence[datasets.Dataset], names: Sequence[str]) -> list[str]:
    shared = [
        column
        for column in sources[0].column_names
        if all(column in rows.column_names for rows in sources)
    ]
    if not shared:
        columns = "; ".join(
            f"{name} has {', '.join(rows.column_names)}"
            for name, rows in zip(names, sources, strict=True)
        )
        raise ConfigError(f"the sources have no column in common: {columns}")
    return shared


def _mixed(sources: Sequence[datasets.Dataset], weights: Sequence[float]) -> datasets.Dataset:
    """Row k of a source comes at the moment (k + 1/2) / share, so that shares hold all along."""
    lengths = numpy.array([len(rows) for rows in sources])
    shares = numpy.array(weights) / sum(weights)
    total = float((lengths / shares).max())
    starts = numpy.concatenate([[0], numpy.cumsum(lengths)[:-1]])
    drawn = numpy.maximum(lengths, numpy.rint(total * shares).astype(numpy.int64))
    moments = numpy.concatenate(
        [(numpy.arange(n) + 0.5) / share for n, share in zip(drawn, shares, strict=True)]
    )
    rows = numpy.concatenate(
        [
            start + numpy.arange(n) % length
            for start, n, length in zip(starts, drawn, lengths, strict=True)
        ]
    )
    return _joined(sources).select(rows[numpy.argsort(moments, kind="stable")])


def _joined(sources: Sequence[datasets.Dataset]) -> datasets.Dataset:
    import datasets

    try:
        return datasets.concatenate_datasets(list(sources))
    except ValueError as error:
        raise ConfigError(f"the sources' columns don't fit together: {_cause(error)}") from None
