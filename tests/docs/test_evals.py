"""The evaluations of the skills: whole, and held by the scripted agent.

Of the planted faults that the project promises to fix within three calls, two are played, of the
others `TRAINMASTER_EVALS`, chosen by a printed seed; `make evals` plays all.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from support.evals.cases import NAMES, SKILLS, Case, cases, description_of, triggers
from support.evals.judge import play
from support.evals.matching import Matcher
from support.evals.model import ModelAgent, NoModelError
from support.evals.portable import PREMISES, evals_document
from support.evals.scripted import scripted
from support.evals.situations import SITUATIONS
from support.evals.table import table

from trainmaster.mcp.toolsets import TOOLSETS

_PLAYED = int(os.environ.get("TRAINMASTER_EVALS", "1"))
_SEED = int(os.environ.get("TRAINMASTER_EVALS_SEED", str(random.SystemRandom().randrange(10**6))))
_FEWEST = 12
# Of a prompt that shares no more than one rare word with any description.
_OF_ONE_WORD = 1.7
_TOOLS = {one.name for tools in TOOLSETS.values() for one in tools}
# What the project promises of a planted fault: fixed within three calls, nothing asked twice.
_PROMISED = ("out-of-memory", "nan", "hang", "lost-host")
# The debug host's runs live in the process that started them: of these none is needed any more.
_OF_ENDED_RUNS = ("out-of-memory", "nan")


def test_each_skill_has_cases_and_some_of_them_forbid() -> None:
    every = cases()
    assert len({(case.skill, case.id) for case in every}) == len(every)
    counted = Counter(case.skill for case in every)
    assert {skill for skill in NAMES if counted[skill] < _FEWEST} == set()
    assert {case.situation for case in every} == set(SITUATIONS)
    assert {tool for case in every for tool in (*case.must, *case.never)} <= _TOOLS
    for skill in NAMES:
        assert sum(case.never != () for case in every if case.skill == skill) >= _FEWEST


def test_the_evaluations_as_json_are_those_of_the_cases() -> None:
    assert set(PREMISES) == set(SITUATIONS)
    for skill in NAMES:
        text = (SKILLS / skill / "evals" / "evals.json").read_text()
        assert text == evals_document(skill), "`make docs` writes them"
        document = json.loads(text)
        assert document["skill_name"] == skill
        of_skill = [case for case in cases() if case.skill == skill]
        for one, case in zip(document["evals"], of_skill, strict=True):
            assert [*one] == ["id", "prompt", "expected_output", "files", "expectations"]
            assert one["prompt"] == case.prompt
            said = " ".join(one["expectations"])
            assert all(f"Calls `{tool}`." in said for tool in case.must)
            assert all(f"Never calls `{tool}`." in said for tool in case.never)
            assert len(one["expectations"]) > len(case.end)


def test_prompts_match_the_description_of_their_skill_or_none() -> None:
    matcher = Matcher.of({name: description_of(name) for name in NAMES})
    wrong = []
    for trigger in triggers():
        ranked = matcher.ranked(trigger.prompt)
        most = ranked[0][0]
        best = {name for score, name in ranked if score == most > 0}
        right = most < _OF_ONE_WORD if trigger.skill is None else trigger.skill in best
        if trigger.agent == "any" and not right:
            wrong.append((trigger.prompt, trigger.skill, ranked))
    assert wrong == []


def test_the_scripted_agent_holds_what_the_cases_ask_for(tmp_path: Path) -> None:
    scriptable = [case for case in cases() if case.agent == "any"]
    promised = [case for case in scriptable if _is_promised(case)]
    others = [case for case in scriptable if not _is_promised(case)]
    drawn = random.Random(_SEED)
    promised = drawn.sample(promised, min(1 + _PLAYED, len(promised)))
    chosen = promised + drawn.sample(others, min(_PLAYED, len(others)))
    folders = (tmp_path / str(number) for number in range(len(chosen)))
    verdicts = [play(case, scripted, folder) for case, folder in zip(chosen, folders, strict=False)]
    print(table(verdicts))
    failed = [(one.case.id, one.problems) for one in verdicts if one.problems]
    assert not failed, f"seed {_SEED}: {failed}\n{table(verdicts)}"
    assert max(len(one.calls) for one in verdicts[: len(promised)]) <= 3


def test_a_planted_fault_is_fixed_over_stdio(tmp_path: Path) -> None:
    """By a server that is a process of its own, as clients start it."""
    ended = [case for case in cases() if _is_promised(case) and case.id in _OF_ENDED_RUNS]
    case = random.Random(_SEED).choice(ended)
    verdict = play(case, scripted, tmp_path, over_stdio=True)
    print(table([verdict]))
    assert verdict.problems == ()
    assert len(verdict.calls) <= 3


def _is_promised(case: Case) -> bool:
    return case.skill == "training-doctor" and case.id in _PROMISED


def test_a_model_is_asked_only_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(NoModelError, match="ANTHROPIC_API_KEY"):
        ModelAgent()
