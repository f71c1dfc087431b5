"""Looks at the data of a spec: at the operator's files here, at the box's own over there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import PurePosixPath

from trainer_runtime.core.corpus import ON_BOX, Listing, Source, look_at
from trainmaster.backends import NAMES, Backend
from trainmaster.plan import CorpusFacts, chosen_tokenizer
from trainmaster.spec import TrainingSpec


async def look_at_data(spec: TrainingSpec, backend: Backend) -> CorpusFacts:
    """The files of every source, as they are now, and whether the box holds their shards.

    Raises:
        HostError: the box can't be asked.
    """
    if spec.host in NAMES:  # this machine: its files are the operator's
        return await asyncio.to_thread(_facts_here, spec)
    here = await asyncio.to_thread(_look_here, spec, everything=False)
    there = await _look_there(spec, backend)
    facts = await asyncio.to_thread(_facts, spec, {**here, **there}, set(here))
    if any(source.problem for source in facts.sources):
        return facts
    return facts.model_copy(update={"cached": await backend.has_shards(facts.fingerprint)})


def _facts_here(spec: TrainingSpec) -> CorpusFacts:
    return _facts(spec, _look_here(spec, everything=True), set())


def _look_here(spec: TrainingSpec, *, everything: bool) -> dict[str, Listing]:
    """Of each source that lies here, what lies there, by the source's name."""
    return {
        _name(source.name, source.path): look_at(source.path.removeprefix(ON_BOX))
        for source in spec.data.sources
        if everything or not source.path.startswith(ON_BOX)
    }


async def _look_there(spec: TrainingSpec, backend: Backend) -> dict[str, Listing]:
    asked = {
        _name(source.name, source.path): source.path.removeprefix(ON_BOX)
        for source in spec.data.sources
        if source.path.startswith(ON_BOX)
    }
    if not asked:
        return {}
    listed = await backend.list_corpus(list(asked.values()))
    return dict(zip(asked, listed, strict=True))


def _facts(spec: TrainingSpec, listed: Mapping[str, Listing], sent: set[str]) -> CorpusFacts:
    sources, problems, sent_as = [], {}, {}
    for source in spec.data.sources:
        name = _name(source.name, source.path)
        found = listed[name]
        sources.append(Source(name, source.path, found.files))
        if found.problem is not None:
            problems[name] = found.problem
        if name in sent:
            file_name = PurePosixPath(source.path).name
            sent_as[name] = name if found.is_folder else f"{name}/{file_name}"
    return CorpusFacts.of(
        sources, chosen_tokenizer(spec), spec.data.seq_len, problems, sent_as=sent_as
    )


def _name(name: str | None, path: str) -> str:
    return name or PurePosixPath(path).name
