"""A real model as the agent under evaluation: a plain loop of its tool calls.

The model gets the skill, the server's instructions and its tools as a client shows them. It needs
the package `anthropic` and a key in ANTHROPIC_API_KEY; each case costs some cents.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from support.evals.cases import NAMES, description_of
from support.evals.session import Session

MODEL_VARIABLE = "TRAINMASTER_EVAL_MODEL"
_DEFAULT_MODEL = "claude-sonnet-4-5"
_KEY_VARIABLE = "ANTHROPIC_API_KEY"
_MOST_TURNS = 12
_MOST_TOKENS = 2_000
_SKILLS = Path(__file__).resolve().parents[3] / "skills"


class NoModelError(RuntimeError):
    """A model can't be asked here, with what is missing."""


class ModelAgent:
    """Asks a model, one conversation a case."""

    def __init__(self) -> None:
        """Raises:
        NoModelError: the package or the key is missing.
        """
        if not os.environ.get(_KEY_VARIABLE):
            raise NoModelError(f"Set {_KEY_VARIABLE} to evaluate a model.")
        try:
            import anthropic
        except ImportError:
            raise NoModelError("Install the package `anthropic` to evaluate a model.") from None
        self._client: Any = anthropic.AsyncAnthropic()
        self._model = os.environ.get(MODEL_VARIABLE, _DEFAULT_MODEL)

    async def work(self, session: Session, prompt: str) -> None:
        """Let the model work on a prompt until it makes no more calls."""
        tools = [
            {"name": one.name, "description": one.description, "input_schema": one.input_schema}
            for one in session.tools
        ]
        messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        system = f"{session.instructions}\n\n{_skills()}"
        for _ in range(_MOST_TURNS):
            said = await self._client.messages.create(
                model=self._model,
                max_tokens=_MOST_TOKENS,
                system=system,
                tools=tools,
                messages=messages,
            )
            messages.append({"role": "assistant", "content": said.content})
            results = [
                await _result(session, block) for block in said.content if block.type == "tool_use"
            ]
            if not results:
                return
            messages.append({"role": "user", "content": results})

    async def chooses(self, prompt: str) -> str | None:
        """The skill whose description the model finds to match a prompt; None for none."""
        listed = "\n".join(f"{name}: {description_of(name)}" for name in NAMES)
        said = await self._client.messages.create(
            model=self._model,
            max_tokens=20,
            system=f"Answer with the name of the skill to load for the prompt, or none.\n{listed}",
            messages=[{"role": "user", "content": prompt}],
        )
        answered = "".join(getattr(block, "text", "") for block in said.content)
        return next((name for name in NAMES if name in answered), None)


async def _result(session: Session, block: Any) -> dict[str, Any]:
    text, answer = await session.call(block.name, block.input)
    return {
        "type": "tool_result",
        "tool_use_id": block.id,
        "content": text,
        "is_error": not answer,
    }


def _skills() -> str:
    return "\n\n".join((_SKILLS / name / "SKILL.md").read_text() for name in NAMES)
