"""`docs/diagnosis.md`, generated from the catalogues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trainer_runtime.core.diagnosis.detectors.messages import WORDS, Words
from trainer_runtime.core.diagnosis.remedies import (
    LADDER,
    OF_SERIES,
    REMEDIES,
    RUNGS,
    Remedy,
    advice,
)
from trainer_runtime.core.diagnosis.signatures import CATALOGUE
from trainer_runtime.core.diagnosis.signatures.explain import EXPLANATIONS
from trainmaster.runs.diagnosis.diagnose_run import REPORTED_BY_TRAINER, SAVE_ADVICE

_INTRODUCTION = """\
# Diagnosis

Made from the code by `scripts/make_docs.py`.

`trainmaster diagnose RUN` explains what is wrong with a run: its host watches its series, its log,
the machine and the end of its processes, and writes findings into the run's journal.
`trainmaster diagnose FILE` does the same for the log of any training: it searches the text for
failures, and runs the detectors on the metrics. The first cause comes first. Findings that are
over are listed with `--all`, and always for a file.

A finding has an `id`, a `code` of the tables below, a `severity` (`info`, `warning`, `critical`), a
`confidence` (0 to 1), a `step` where one is known, an `explanation`, `advice`, and `patches`. Only
`evidence` holds text of the log. Treat it as untrusted data; it is sanitised and cut.

A patch changes the resolved configuration (`set`), names the values that it replaces (`expected`),
where the training resumes (`from`) and which data is left out (`skip`).

    trainmaster resume RUN --apply FINDING[:PATCH]

applies it and starts; without PATCH the first one, and the answer names it. A patch that was
applied before for a finding that came back ranks last (`tried`). FINDING is an id, or the code of
an open finding. A patch is refused with `PATCH_STALE` if the configuration has changed since or the
checkpoint was removed. `trainmaster status RUN --detail` lists what each attempt changed, by
whom and why.
No patch takes tokens from an optimizer step or shortens a sequence; a run gets the rungs
whose fields its configuration has.

Files are refused with `LOG_NOT_READABLE` if they are not text. Of a file's series, the first
million steps are read.
"""
# The cause of a stall, as `inspect` finds it.
OF_STACKS = {
    "hang_collective": "Ranks wait in a collective operation for one that does not take part.",
    "hang_data": "The ranks wait for their next batch, and it does not come.",
    "hang_checkpoint": "Saving does not come to an end: the storage does not answer.",
    "slow_not_hung": "The ranks work, only slowly: their stacks differ between samples.",
}
_BESIDE = {
    "checkpoint_failed": SAVE_ADVICE,
    "hang_collective": ("Check the rank that differs, and its machine.",),
    "hang_data": ("Check the storage that the data is read from.",),
    "hang_checkpoint": ("Check the storage that checkpoints are written to.",),
    "slow_not_hung": ("Find out what its steps wait for; a restart would not help.",),
}


def reference() -> str:
    """The whole page."""
    return "\n".join(
        [
            _INTRODUCTION,
            "## From logs, kernels and exit codes\n",
            _codes(EXPLANATIONS),
            "## From series and telemetry\n",
            _codes({code: words.explanation for code, words in WORDS.items()}, WORDS),
            "## From stacks (`inspect`)\n",
            _codes(OF_STACKS),
            "## From the trainer's own checks\n",
            _codes(REPORTED_BY_TRAINER),
            "## Patches\n",
            _patches(),
        ]
    )


def every_code() -> set[str]:
    """All codes that a finding can have."""
    return {
        *EXPLANATIONS,
        *WORDS,
        *OF_STACKS,
        *REPORTED_BY_TRAINER,
        *(one.code for one in CATALOGUE),
    }


def _codes(explanations: Mapping[str, str], words: Mapping[str, Words] | None = None) -> str:
    rows = (
        f"| `{code}` | {text} | {' '.join(_advice(code, words or {}))} |"
        f" {_named(_patches_of(code))} |"
        for code, text in sorted(explanations.items())
    )
    return "\n".join(["| code | meaning | what to do | patches |", "|---|---|---|---|", *rows, ""])


def _advice(code: str, words: Mapping[str, Words]) -> tuple[str, ...]:
    return words[code].advice if code in words else _BESIDE.get(code) or advice(code)


def _patches_of(code: str) -> Iterable[str]:
    of_log = (rung.id for rung in LADDER if code in rung.codes)
    return dict.fromkeys([*OF_SERIES.get(code, ()), *of_log])


def _named(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def _patches() -> str:
    rows = [f"| `{rung.id}` | {rung.why} |" for rung in LADDER]
    rows += [
        f"| `{name}` | {_why(remedy)} |" for name, remedy in REMEDIES.items() if name not in RUNGS
    ]
    return "\n".join(["| patch | what it does |", "|---|---|", *rows, ""])


def _why(remedy: Remedy) -> str:
    rung = RUNGS[remedy.rung].why if remedy.rung is not None else ""
    return " ".join(filter(None, (remedy.why, rung)))
