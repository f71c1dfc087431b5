"""Evaluates an agent on the cases of `skills/*/evals`: the scripted one, or a model.

    .venv/bin/python scripts/run_evals.py [--model] [SKILL or SKILL/CASE]...

Prints calls and tokens of each case; exit code 1 where one fails, 2 where a model can't be asked.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import anyio
from support.evals.cases import Case, cases, triggers
from support.evals.judge import Agent, Verdict, play
from support.evals.model import ModelAgent, NoModelError
from support.evals.scripted import scripted
from support.evals.table import table


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="store_true", help="a real model; costs money")
    parser.add_argument("only", nargs="*", metavar="SKILL[/CASE]")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # of servers that have no keys
    try:
        model = ModelAgent() if arguments.model else None
    except NoModelError as error:
        print(error, file=sys.stderr)
        return 2
    chosen = [case for case in cases() if _is_chosen(case, arguments.only, bool(model))]
    verdicts = [_played(case, model.work if model else scripted) for case in chosen]
    print(table(verdicts))
    wrong = anyio.run(_misread, model) if model and not arguments.only else []
    print("\n".join(wrong))
    return int(any(one.problems for one in verdicts) or bool(wrong))


def _is_chosen(case: Case, only: list[str], with_model: bool) -> bool:
    name = f"{case.skill}/{case.id}"
    fits = with_model or case.agent != "model"
    return fits and (not only or any(one in (case.skill, name) for one in only))


def _played(case: Case, agent: Agent) -> Verdict:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return play(case, agent, Path(folder))


async def _misread(model: ModelAgent) -> list[str]:
    """The prompts for which a model takes another skill than theirs."""
    return [
        f"FAILED: {one.prompt!r} is read as {chosen}, not {one.skill}"
        for one in triggers()
        if (chosen := await model.chooses(one.prompt)) != one.skill
    ]


if __name__ == "__main__":
    sys.exit(main())
