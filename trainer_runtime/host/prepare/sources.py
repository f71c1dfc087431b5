"""The sources of a config with their files, as they were when the plan was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from trainer_runtime.core.config import DataConfig, RunConfig, SourceConfig
from trainer_runtime.core.files.corpus import (
    SHARDS,
    CorpusFile,
    Source,
    content_digests,
    fingerprint,
    list_files,
)
from trainer_runtime.core.inputs.held_out_copies import trained_on
from trainer_runtime.host.prepare.uploads import NothingComesError, await_sources

Report = Callable[[str], None]


class DataUnusableError(Exception):
    """The data can't be trained on as the config asks; a retry would end the same way."""


def await_listed(config: RunConfig, report: Report) -> None:
    """See that the sources are there as they were planned with, for those who read them as they
    are; what is sent is waited for.

    Raises:
        DataUnusableError: they changed, or the client can't send them.
    """
    data = config.data
    try:
        arrived = await_sources(config, lambda: False, report) if data.upload else {}
        for source in as_planned(data, arrived):
            refuse_empty(source)
    except NothingComesError as error:
        raise DataUnusableError(str(error)) from None


def as_planned(data: DataConfig, arrived: Mapping[str, tuple[CorpusFile, ...]]) -> list[Source]:
    """The sources with their files; `arrived`: those that were sent, as they were there.

    Raises:
        DataUnusableError: they are not what the plan was made for.
    """
    sources = [
        _source(source, arrived[source.name]) if source.name in arrived else _listed(source)
        for source in data.inputs
    ]
    tokenizer = data.tokenizer_digest or data.tokenizer
    digests = _digests(sources) if data.by_content else None
    unlisted = {source.name for source in data.inputs if not source.is_listed}
    digest = fingerprint(
        [replace(source, files=()) if source.name in unlisted else source for source in sources],
        tokenizer,
        data.seq_len,
        data.form or SHARDS,
        digests=digests,
        bad_rows=data.bad_rows,
        filters=None if data.filters is None else data.filters.to_dict(),
    )
    if digest != data.fingerprint:
        raise DataUnusableError(
            f"the files of {', '.join(source.path for source in sources)} changed since the plan "
            f"(fingerprint {digest} instead of {data.fingerprint}); plan again"
        )
    _refuse_trained_on(sources)
    return sources


def refuse_empty(source: Source) -> None:
    if not source.files:
        message = f"data source {source.name}: no {source.format} files in {source.path}"
        raise DataUnusableError(message)


def file_path(source: Source, document: CorpusFile) -> Path:
    """The location of a source's document."""
    root = Path(source.path)
    return root / document.name if root.is_dir() else root


def _refuse_trained_on(sources: Sequence[Source]) -> None:
    held_out = [_paths(source) for source in sources if source.held_out]
    training = [_paths(source) for source in sources if not source.held_out]
    trained_sources = trained_on(chain(*training), chain(*held_out))
    if trained_sources is not None:
        raise DataUnusableError(f"data.validation: {trained_sources}")


def _paths(source: Source) -> list[Path]:
    return [file_path(source, document) for document in source.files]


def _digests(sources: Sequence[Source]) -> dict[tuple[str, str], str]:
    digests: dict[tuple[str, str], str] = {}
    for source in sources:
        digests |= content_digests(
            source, {file.name: file_path(source, file) for file in source.files}
        )
    return digests


def _source(source: SourceConfig, files: tuple[CorpusFile, ...]) -> Source:
    name, path, held_out = source.name, source.path, source.held_out
    return Source(name, path, files, source.format, held_out, source.revision)


def _listed(source: SourceConfig) -> Source:
    name, path = source.name, source.path
    try:
        return _source(source, list_files(Path(path), source.format))
    except FileNotFoundError:
        raise DataUnusableError(f"data source {name}: there is nothing at {path}") from None
    except OSError as error:
        raise DataUnusableError(f"data source {name}: {path}: {error.strerror}") from None
