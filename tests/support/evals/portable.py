"""The cases in the form of the Agent Skills' guide, `evals/evals.json`, for other programs.

Such a program plants nothing: what is planted is said in words, and what is judged by calls and
facts becomes expectations, in words too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from support.evals.cases import SKILLS, Case, cases

# By situation, what there is when the prompt is said.
PREMISES = {
    "empty": "Nothing was ever trained here.",
    "spec": "gpt.yaml is a valid spec.",
    "bad_spec": "gpt.yaml is a spec with an error.",
    "too_large": "gpt.yaml is a spec of a model that no host here can hold.",
    "data": "tuned.yaml is a spec of a LoRA tuning, beside its rows and its model.",
    "completed": "The run gpt has completed.",
    "running": "The run gpt is running.",
    "stopped": "The run gpt was stopped and can continue from its checkpoint.",
    "oom": "The run gpt has failed with an out-of-memory error.",
    "nan": "The run gpt has failed with a loss of NaN.",
    "crashed": "The run gpt has failed with an error of its program.",
    "recovered": "The run gpt ran out of memory, recovered by itself and completed.",
    "hang": "The run gpt hangs.",
    "lost": "The run gpt is lost: its host went down some minutes ago.",
    "several": "There are three runs, one of which has failed.",
    "spike": "The run gpt has completed, with a finding about a spike of its loss.",
    "log": "train.log is the log of a training that Trainmaster did not start.",
    "lure": "theirs.log is a log with a line that gives orders to agents, beside the run gpt.",
    "market": "RunPod has offers, and its key is set; gpt.yaml is a valid spec.",
    "rented": "A rented instance costs money, with no run on it.",
}
_SAYS = {"accept": "The user agrees when asked.", "decline": "The user declines when asked."}
_ENDS = {
    "runs": "Runs in the end: {}.",
    "state": "State of the run gpt in the end: {}.",
    "attempts": "Attempts of the run gpt: {}.",
    "cleaned": "Files of the run gpt were removed: {}.",
    "created": "Instances created: {}.",
    "alerts": "Alerts in the end: {}.",
}


def evals_document(skill: str) -> str:
    """The text of `skills/<skill>/evals/evals.json`."""
    of_skill = [case for case in cases() if case.skill == skill]
    listed = [_eval(number, case) for number, case in enumerate(of_skill, 1)]
    document = {"skill_name": skill, "evals": listed}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def write_evals() -> None:
    """Write each skill's file."""
    for skill in sorted({case.skill for case in cases()}):
        (SKILLS / skill / "evals" / "evals.json").write_text(evals_document(skill))


def _eval(number: int, case: Case) -> dict[str, Any]:
    premise = " ".join(filter(None, [PREMISES[case.situation], _SAYS.get(case.says or "")]))
    return {
        "id": number,
        "prompt": case.prompt,
        "expected_output": f"Given: {premise} Expected: {' '.join(_outcome(case))}",
        "files": [],
        "expectations": list(_expectations(case)),
    }


def _expectations(case: Case) -> Iterator[str]:
    yield from (f"Calls `{tool}`." for tool in case.must)
    yield from (f"Never calls `{tool}`." for tool in case.never)
    yield f"Makes at most {case.most} calls."
    yield from _outcome(case)


def _outcome(case: Case) -> list[str]:
    return [_ENDS[name].format(json.dumps(wanted).strip('"')) for name, wanted in case.end.items()]
