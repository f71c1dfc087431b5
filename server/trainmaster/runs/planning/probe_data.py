"""Probes the data of a spec: files of this machine here, the host's own files there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import PurePosixPath

from trainer_runtime.core.files.corpus import ON_BOX, AskedSource, Listing, Source
from trainer_runtime.core.files.tokenizer_folder import BYTE
from trainer_runtime.core.inputs.row_form import rows_of
from trainer_runtime.core.inputs.source_check import check_source
from trainmaster.backends import HERE, Backend, InputExaminer, InputReceiver
from trainmaster.plan import CorpusFacts, TokenizerFacts, form_of
from trainmaster.plan.spec import SourceSpec, TrainingSpec


async def probe_data(
    spec: TrainingSpec, backend: Backend, tokenizer: TokenizerFacts | None = None
) -> CorpusFacts:
    """The files of every source, as they are now, and whether the host holds their shards.

    `tokenizer`: the one that is to read them, None for bytes.

    Raises:
        HostError: the host can't be reached.
    """
    if spec.host in HERE:  # this machine
        return await asyncio.to_thread(_facts_here, spec, tokenizer)
    here = await asyncio.to_thread(_list_here, spec, everything=False)
    there = await _list_there(spec, backend)
    facts = await asyncio.to_thread(_facts, spec, {**here, **there}, set(here), tokenizer)
    if any(source.problem for source in facts.sources):
        return facts
    cached = await InputReceiver.of(backend).has_shards(facts.fingerprint)
    return facts.model_copy(update={"cached": cached})


def _facts_here(spec: TrainingSpec, tokenizer: TokenizerFacts | None) -> CorpusFacts:
    return _facts(spec, _list_here(spec, everything=True), set(), tokenizer)


def _list_here(spec: TrainingSpec, *, everything: bool) -> dict[str, Listing]:
    """The listings of the sources on this machine, by the source's name."""
    return {
        _name(source.name, source.path): check_source(_asked(spec, source))
        for source in spec.data.sources
        if everything or not source.path.startswith(ON_BOX)
    }


async def _list_there(spec: TrainingSpec, backend: Backend) -> dict[str, Listing]:
    asked = {
        _name(source.name, source.path): _asked(spec, source)
        for source in spec.data.sources
        if source.path.startswith(ON_BOX)
    }
    if not asked:
        return {}
    examiner = InputExaminer.of(backend, field="data.sources")
    listed = await examiner.list_corpus(list(asked.values()))
    return dict(zip(asked, listed, strict=True))


def _asked(spec: TrainingSpec, source: SourceSpec) -> AskedSource:
    kind = rows_of(spec.framework, spec.resolved_method)
    stated = "format" in source.model_fields_set
    return AskedSource(source.path.removeprefix(ON_BOX), source.format, kind, stated)


def _facts(
    spec: TrainingSpec,
    listed: Mapping[str, Listing],
    sent: set[str],
    tokenizer: TokenizerFacts | None,
) -> CorpusFacts:
    sources, sent_as = [], {}
    for source in spec.data.sources:
        name = _name(source.name, source.path)
        found = listed[name]
        sources.append(Source(name, source.path, found.files, source.format))
        if name in sent:
            file_name = PurePosixPath(source.path).name
            sent_as[name] = name if found.is_folder else f"{name}/{file_name}"
    facts = CorpusFacts.of(
        sources,
        BYTE if tokenizer is None else tokenizer.digest,
        spec.data.seq_len,
        form_of(spec),
        sent_as=sent_as,
    )
    checks = {name: _checked(one) for name, one in listed.items()}
    checked = tuple(one.model_copy(update=checks[one.name]) for one in facts.sources)
    return facts.model_copy(update={"sources": checked})


def _checked(found: Listing) -> dict[str, str | int | None]:
    tokens = {} if found.tokens is None else {"tokens": found.tokens}
    return {
        "problem": found.problem,
        "malformed": found.malformed,
        "examples": found.examples,
        **tokens,
    }


def _name(name: str | None, path: str) -> str:
    return name or PurePosixPath(path).name
