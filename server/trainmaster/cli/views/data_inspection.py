"""What people see of inspected data."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.protocol.figures import number_text, share_text, size_text
from trainmaster.answers.data_inspection import DataInspection, InspectedSource
from trainmaster.cli.views.blocks import Block, Grid, named, view


@view.register
def _(answer: DataInspection) -> list[Block]:
    blocks = [block for source in answer.sources for block in _source(source)]
    return [*blocks, *named("Next", answer.next_step)]


def _source(source: InspectedSource) -> Iterator[Block]:
    name = f"{source.name} " if source.name else ""
    role = " (validation)" if source.held_out else ""
    yield f"{name}{source.path}{role}: {size_text(source.size_bytes)}"
    files = ", ".join(f"{number_text(count)} × {kind}" for kind, count in source.files.items())
    yield from named("Files", files)
    yield from named("Format", source.format)
    about = "about " if source.rows_estimated else ""
    yield from named("Rows", None if source.rows is None else f"{about}{number_text(source.rows)}")
    tokens = (f"{number_text(count)} ({name})" for name, count in (source.tokens or {}).items())
    yield from named("Tokens", ", ".join(tokens))
    yield from named("Languages", source.languages)
    if source.duplicates is not None:
        yield f"Duplicates: {share_text(source.duplicates, 1)} of the sample"
    yield from named("Odd bytes", _pairs(source.odd_bytes))
    yield from named("Characters", _pairs(source.length_chars))
    if source.untrusted_fields is not None:
        columns = source.untrusted_fields
        shares = map(share_text, columns.present)
        rows = list(zip(columns.name, columns.type, shares, strict=True))
        yield Grid(("field", "type", "present"), rows)
    if source.methods:
        yield Grid(("method", "can learn from it, or needs"), list(source.methods.items()))
    yield from (f"Problem: {problem}" for problem in source.untrusted_problems or ())
    yield from (f"Example: {example}" for example in source.untrusted_examples or ())
    yield from (source.notes or ())
    if source.sampled_bytes:
        yield f"From a sample of {size_text(source.sampled_bytes)}"


def _pairs(counts: dict[str, int] | None) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {number_text(count)}" for name, count in (counts or {}).items()
    )
