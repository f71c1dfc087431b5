"""Inspects one source: its files, a sample of them, and what each method would need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.corpus import TEXT, AskedSource
from trainer_runtime.core.inputs.row_form import ACCEPTED, problem_of_columns
from trainer_runtime.core.inputs.source_check import check_source
from trainer_runtime.core.protocol.text import cleaned
from trainmaster.answers.data_inspection import FieldColumns, InspectedSource
from trainmaster.runs.data.data_files import MOST_FILES, DataFile, DataFiles, list_data
from trainmaster.runs.data.data_sample import Counted, Sample
from trainmaster.runs.data.data_tokens import tokens_per_byte
from trainmaster.runs.data.languages import languages_of
from trainmaster.runs.data.read_sample import read_sample

_EXAMPLE, _PROBLEM, _MOST_PROBLEMS = 300, 400, 8
_PRETRAIN = "pretrain"
YES = "yes"
_CORRECTED = "its problems corrected first"
_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "max": 1.0}
_SAVED_MARKS = ("dataset_info.json", "dataset_dict.json")
_TOKENS, _SAVED = "tokens", "hf"


@dataclass(frozen=True, slots=True)
class Declared:
    """What a spec says of a source: its format, whether that was `stated`, and the kind of rows
    that its method learns from."""

    format: str
    kind: str
    stated: bool


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be inspected. `shown_path`: as it was named; `field`: of a spec."""

    path: Path
    shown_path: str
    field: str = "path"
    name: str | None = None
    held_out: bool = False
    declared: Declared | None = None
    tokenizer: str = ""


def inspect_source(subject: Subject) -> InspectedSource:
    """What a file or folder of this machine holds. Why it can't be read is among its problems."""
    source = InspectedSource(
        path=subject.shown_path, name=subject.name, held_out=subject.held_out or None
    )
    try:
        listed = list_data(subject.path)
    except FileNotFoundError as error:
        problem = error.strerror if subject.path.exists() else "there is nothing at this path"
        return source.model_copy(update={"untrusted_problems": [problem or "it can't be read"]})
    except OSError as error:
        problem = f"it can't be read ({error.strerror})"
        return source.model_copy(update={"untrusted_problems": [problem]})
    return source.model_copy(update=_inspected(subject, listed))


def _inspected(subject: Subject, listed: DataFiles) -> dict[str, object]:
    kinds = Counter(file.kind for file in listed.files)
    data_format = _main_format(listed.files)
    files = [file for file in listed.files if file.format == data_format and data_format]
    spec_format = _spec_format(listed, data_format)
    sample, notes = Sample(), list(_notes(listed))
    counted = Counted()
    if data_format is not None:
        counted = _sampled(files, data_format, sample, notes)
    problem = _problem(subject, listed, spec_format)
    return {
        "format": spec_format,
        "files": dict(kinds.most_common()),
        "size_bytes": sum(file.size_bytes for file in listed.files),
        "sampled_bytes": sample.read_bytes or None,
        "rows": counted.rows,
        "rows_estimated": counted.is_estimated or None,
        **_content(sample),
        "tokens": _tokens(subject, sample, counted, notes),
        "methods": _methods(spec_format, sample, problem),
        "untrusted_problems": _problems(problem, sample),
        "notes": notes or None,
    }


def _main_format(files: Sequence[DataFile]) -> str | None:
    """The format of most bytes that a format here reads."""
    sizes: Counter[str] = Counter()
    for file in files:
        if file.format is not None:
            sizes[file.format] += file.size_bytes
    return sizes.most_common(1)[0][0] if sizes else None


def _spec_format(listed: DataFiles, data_format: str | None) -> str | None:
    """As `data.sources[].format` names it: Arrow files that `datasets` saved are `hf`."""
    is_saved = data_format == "arrow" and any(
        (listed.root / mark).is_file() for mark in _SAVED_MARKS
    )
    return _SAVED if is_saved else data_format


def _notes(listed: DataFiles) -> list[str]:
    notes = []
    if not listed.is_whole:
        notes.append(f"There are more than {MOST_FILES:,} files; the others are not counted.")
    if listed.by_name:
        notes.append(f"{listed.by_name:,} files were classified by their names' endings alone.")
    notes += [f"Left out: {count:,} ({why})." for why, count in sorted(listed.skipped.items())]
    return notes


def _sampled(
    files: Sequence[DataFile], data_format: str, sample: Sample, notes: list[str]
) -> Counted:
    try:
        counted = read_sample(files, data_format, sample)
    except ImportError as error:
        notes.append(f"Its rows are not read: {error.name} is not installed on this machine.")
        return Counted()
    except OSError as error:
        sample.add_damaged(f"a file can't be read ({error.strerror})")
        return Counted()
    notes += [counted.note] if counted.note else []
    notes += ["There are more fields than are listed."] if sample.has_more_fields else []
    return counted


def _problem(subject: Subject, listed: DataFiles, spec_format: str | None) -> str | None:
    """Why a plan would refuse the source, by the plan's own check: as the spec declares it, else by
    its content. None for folders of so many files that the check would take long."""
    if not listed.files:
        return "it holds no file that may be read"
    if not listed.is_whole:
        return None
    declared = subject.declared or Declared(spec_format or TEXT, "", True)
    listing = check_source(
        AskedSource(str(subject.path), declared.format, declared.kind, declared.stated)
    )
    problem = listing.problem or listing.malformed
    if problem is None and not listing.files:
        return f"no file in it has a name that format {declared.format} reads, and content"
    return problem


def _content(sample: Sample) -> dict[str, object]:
    """What the sample's rows and texts are."""
    fields = None
    if sample.types:
        names = list(sample.types)
        fields = FieldColumns(
            name=[cleaned(name, 100) for name in names],
            type=[" or ".join(sorted(sample.types[name])[:3]) for name in names],
            present=[sample.present[name] / sample.rows for name in names],
        )
    return {
        "untrusted_fields": fields,
        "languages": languages_of(sample.text),
        "duplicates": sample.repeated / sample.compared if sample.compared else None,
        "odd_bytes": {name: count for name, count in sample.odd.items() if count} or None,
        "length_chars": _quantiles(sorted(sample.lengths)),
        "untrusted_examples": _examples(sample),
    }


def _examples(sample: Sample) -> list[str] | None:
    """Of a text without a whole paragraph its begin."""
    examples = [cleaned(text, _EXAMPLE) for text in sample.examples or [sample.text[:_EXAMPLE]]]
    return [text for text in examples if text.strip()] or None


def _quantiles(lengths: Sequence[int]) -> dict[str, int] | None:
    last = len(lengths) - 1
    if last < 0:
        return None
    return {name: lengths[round(share * last)] for name, share in _QUANTILES.items()}


def _tokens(
    subject: Subject, sample: Sample, counted: Counted, notes: list[str]
) -> dict[str, int] | None:
    """By tokenizer: ready ones, bytes, and those of the spec's tokenizer where it is a folder."""
    if counted.tokens is not None:
        return {"ready": counted.tokens}
    text_bytes = _text_bytes(sample, counted)
    if not text_bytes:
        return None
    tokens = {"byte": text_bytes}
    if subject.tokenizer.startswith("/"):
        share, problem = tokens_per_byte(Path(subject.tokenizer), sample.text)
        if share is not None:
            tokens[Path(subject.tokenizer).name] = round(share * text_bytes)
        if problem is not None:
            notes.append(f"Not counted by the spec's tokenizer: {problem}.")
    return tokens


def _text_bytes(sample: Sample, counted: Counted) -> int:
    """Of texts all bytes; of rows those of their texts, as many a row as in the sample."""
    if not sample.rows:
        return (counted.held_bytes or 0) if sample.text else 0
    of_rows = sample.pretrain_bytes or sample.record_bytes
    return round(of_rows / sample.rows * (counted.rows or 0))


def _methods(spec_format: str | None, sample: Sample, problem: str | None) -> dict[str, str] | None:
    """By method, whether it learns from the source as it is, or what it would need."""
    if spec_format is None:
        return None
    if spec_format == _TOKENS:
        ready = YES if problem is None and not sample.damaged else _CORRECTED
        return {kind: ready if kind == _PRETRAIN else _needs(kind) for kind in ACCEPTED}
    if spec_format == TEXT:
        fits = {kind: problem_of_columns(kind, [TEXT]) is None for kind in ACCEPTED}
        whole = problem is None
    else:
        if not sample.rows:
            return None
        fits = {kind: kind not in sample.problems for kind in ACCEPTED}
        whole = not sample.damaged
    return {
        kind: (YES if whole else _CORRECTED) if fits[kind] else _needs(kind) for kind in ACCEPTED
    }


def _needs(kind: str) -> str:
    return ACCEPTED[kind]


def _problems(problem: str | None, sample: Sample) -> list[str] | None:
    """First why a plan would refuse it, then damage; of rows whose columns fit, odd values."""
    values = [
        row_problem
        for kind, row_problem in sample.problems.items()
        if problem_of_columns(kind, sample.types) is None
    ]
    named = ([problem] if problem else []) + sample.damaged + values
    return [cleaned(text, _PROBLEM) for text in dict.fromkeys(named)][:_MOST_PROBLEMS] or None
