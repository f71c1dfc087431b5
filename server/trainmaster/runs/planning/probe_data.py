"""Probes the data of a spec: files of this machine here, the host's own files there, those of the
hub and of object stores by what these list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from trainer_runtime.core.files.corpus import ON_BOX, AskedSource, Listing, Source
from trainer_runtime.core.files.tokenizer_folder import BYTE
from trainer_runtime.core.inputs.held_out_copies import trained_on
from trainer_runtime.core.inputs.hub_dataset import PREFIX as HUB
from trainer_runtime.core.inputs.object_store import BEGINNINGS as STORES
from trainer_runtime.core.inputs.row_form import rows_of
from trainer_runtime.core.inputs.source_check import check_source
from trainmaster.backends import HERE, Backend, InputExaminer, InputReceiver
from trainmaster.calls.work_thread import in_thread
from trainmaster.plan import CorpusFacts, TokenizerFacts, form_of
from trainmaster.plan.corpus_facts import SourceFacts
from trainmaster.plan.frameworks import method_of
from trainmaster.plan.spec import SourceSpec, TrainingSpec, ValidationSpec
from trainmaster.runs.planning.data_hub import FetchedListing
from trainmaster.runs.planning.fetched_sources import Askable, list_fetched

_THIS_MACHINE = "here"


async def probe_data(
    spec: TrainingSpec,
    backend: Backend,
    tokenizer: TokenizerFacts | None = None,
    *,
    ask: Askable | None = None,
) -> CorpusFacts:
    """The files of every source, as they are now, and whether the host holds their shards.

    `tokenizer`: the one that is to read them, None for bytes. `ask`: whom for the files that the
    host fetches; None where nobody is asked.

    Raises:
        HostError: the host can't be reached.
        PlanError: `HUB_NOT_FOUND`, `HUB_GATED`, `HUB_UNREACHABLE`, `STORE_NOT_FOUND`,
            `STORE_REFUSED`.
    """
    fetched = await list_fetched(spec, ask)
    if spec.host in HERE:  # this machine
        return await in_thread(_facts_here, spec, fetched, tokenizer)
    here = await in_thread(_list_here, spec, everything=False)
    there = await _list_there(spec, backend)
    facts = await in_thread(_facts, spec, {**here, **there}, fetched, set(here), tokenizer)
    if any(source.problem for source in facts.sources):
        return facts
    cached = await InputReceiver.of(backend).has_shards(facts.fingerprint)
    return facts.model_copy(update={"cached": cached})


def _facts_here(
    spec: TrainingSpec, fetched: Mapping[str, FetchedListing], tokenizer: TokenizerFacts | None
) -> CorpusFacts:
    return _facts(spec, _list_here(spec, everything=True), fetched, set(), tokenizer)


def _list_here(spec: TrainingSpec, *, everything: bool) -> dict[str, Listing]:
    """The listings of the sources on this machine, by the source's name."""
    return {
        _name(source.name, source.path): check_source(_asked(spec, source))
        for _, source in spec.data.inputs
        if _place(source.path, is_local=everything) == _THIS_MACHINE
    }


async def _list_there(spec: TrainingSpec, backend: Backend) -> dict[str, Listing]:
    asked = {
        _name(source.name, source.path): _asked(spec, source)
        for _, source in spec.data.inputs
        if _place(source.path, is_local=False) == ON_BOX
    }
    if not asked:
        return {}
    examiner = InputExaminer.of(backend, field="data.sources")
    listed = await examiner.list_corpus(list(asked.values()))
    return dict(zip(asked, listed, strict=True))


def _asked(spec: TrainingSpec, source: SourceSpec | ValidationSpec) -> AskedSource:
    kind = rows_of(spec.framework, method_of(spec))
    stated = "format" in source.model_fields_set
    path = source.path.removeprefix(ON_BOX)
    return AskedSource(path, source.format, kind, stated, spec.data.bad_rows)


def _facts(
    spec: TrainingSpec,
    listed: Mapping[str, Listing],
    fetched: Mapping[str, FetchedListing],
    sent: set[str],
    tokenizer: TokenizerFacts | None,
) -> CorpusFacts:
    sources, sent_as = [], {}
    files = {name: one.files for name, one in fetched.items()}
    listed = {**listed, **{name: one.listing for name, one in fetched.items()}}
    for _, source in spec.data.inputs:
        name = _name(source.name, source.path)
        listing, of_host = listed[name], files.get(name)
        held_out = isinstance(source, ValidationSpec)
        revision = None if of_host is None else of_host.revision
        sources.append(Source(name, source.path, listing.files, source.format, held_out, revision))
        if name in sent:
            file_name = PurePosixPath(source.path).name
            sent_as[name] = name if listing.is_folder else f"{name}/{file_name}"
    facts = CorpusFacts.of(
        sources,
        BYTE if tokenizer is None else tokenizer.digest,
        spec.data.seq_len,
        form_of(spec),
        sent_as=sent_as,
        plain_bytes={
            name: listing.plain_bytes
            for name, listing in listed.items()
            if listing.plain_bytes is not None
        },
        bad_rows=spec.data.bad_rows,
        bytes_per_token=4.0 if tokenizer is None else tokenizer.bytes_per_token,
        filters=None if spec.data.filters is None else spec.data.filters.model_dump(),
    )
    checks = {name: _checked(checked_listing) for name, checked_listing in listed.items()}
    checked = tuple(
        checked_listing.model_copy(
            update={**checks[checked_listing.name], "fetched": files.get(checked_listing.name)}
        )
        for checked_listing in facts.sources
    )
    is_local = spec.host in HERE
    return facts.model_copy(update={"sources": tuple(_compared(checked, listed, is_local))})


def _compared(
    sources: tuple[SourceFacts, ...], listed: Mapping[str, Listing], is_local: bool
) -> Iterator[SourceFacts]:
    """With what of the validation files is trained on: by content here, by path elsewhere, where
    the preparation compares them once more."""
    for source in sources:
        if not source.held_out:
            yield source
            continue
        place = _place(source.path, is_local=is_local)
        others = [
            other.name
            for other in sources
            if not other.held_out and _place(other.path, is_local=is_local) == place
        ]
        training = chain.from_iterable(_paths(listed[name]) for name in others)
        own = _paths(listed[source.name])
        if place == _THIS_MACHINE:
            overlap = _trained_on(training, own)
        else:
            both = set(training).intersection(own)
            overlap = f"{min(both)} is trained on, too" if both else None
        yield source.model_copy(update={"trained_on": overlap})


def _place(path: str, *, is_local: bool) -> str:
    """Where a source's files are, as its path begins. `is_local`: the host is this machine."""
    for beginning in (HUB, *STORES):
        if path.startswith(beginning):
            return beginning
    return ON_BOX if path.startswith(ON_BOX) and not is_local else _THIS_MACHINE


def _trained_on(training: Iterator[Path], held_out: list[Path]) -> str | None:
    try:
        return trained_on(training, held_out)
    except OSError:
        return None  # the source's own problem says so, or the preparation will


def _paths(listing: Listing) -> list[Path]:
    root = Path(listing.path)
    return [root / file.name if listing.is_folder else root for file in listing.files]


def _checked(listing: Listing) -> dict[str, Any]:
    tokens = {} if listing.tokens is None else {"tokens": listing.tokens}
    return {
        "problem": listing.problem,
        "malformed": listing.malformed,
        "examples": listing.examples,
        "beside": listing.beside,
        "undecodable": listing.undecodable,
        "left_out": listing.left_out,
        "left_name": listing.left_name,
        "chats": listing.chats,
        "compression": listing.compression,
        "bad_rows": listing.bad_rows,
        "first_bad": listing.first_bad,
        **tokens,
    }


def _name(name: str | None, path: str) -> str:
    return name or PurePosixPath(path).name
