"""The answer about data before any plan."""

from trainmaster.answers.base import Answer, WholeAnswer
from trainmaster.answers.fields import field
from trainmaster.answers.fitting import Cap


class FieldColumns(Answer):
    """The fields of the rows, by columns; `present`: the share of the sampled rows that have it."""

    name: list[str]
    type: list[str]
    present: list[float]


class InspectedSource(Answer):
    """What lies at one path. What is not known, or nothing, is omitted."""

    path: str
    name: str | None = None
    held_out: bool | None = field(default=None, description="it is validation data of the spec")
    format: str | None = field(
        default=None, description="of data.sources that reads most of it; none where nothing does"
    )
    files: dict[str, int] = field(default={}, description="how many, by what they are")
    size_bytes: int = 0
    sampled_bytes: int | None = None
    rows: int | None = None
    rows_estimated: bool | None = None
    untrusted_fields: FieldColumns | None = None
    tokens: dict[str, int] | None = field(
        default=None, description="by tokenizer; estimated from the sample, but for `ready`"
    )
    languages: str | None = None
    duplicates: float | None = field(
        default=None, description="share of the sampled rows or paragraphs seen before"
    )
    odd_bytes: dict[str, int] | None = field(default=None, description="in the sample")
    length_chars: dict[str, int] | None = field(
        default=None, description="of the sampled rows or paragraphs: quantiles"
    )
    methods: dict[str, str] | None = field(
        default=None, description="by method: `yes`, or what its rows have to hold"
    )
    untrusted_problems: list[str] | None = field(
        default=None, description="why it can't be read, or a method not learn from it"
    )
    untrusted_examples: list[str] | None = None
    notes: list[str] | None = None


class DataInspection(WholeAnswer):
    """What the data of a spec, or of a path, is."""

    cap = Cap(1_300, drops=("sources",))

    sources: list[InspectedSource]
    next_step: str | None = None
