"""The arguments that each method takes: a closed table, so that a misspelt one is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from trainer_runtime.core.records import dataclass
from trainmaster.plan.spec.annotations import (
    Auto,
    Count,
    FilePath,
    NotNegative,
    Positive,
    Share,
    Text,
)
from trainmaster.plan.spec.fields import accepted, nearest
from trainmaster.plan.spec.places import Framework
from trainmaster.words.errors import Problem

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_BOTH: tuple[Framework, ...] = ("trl", "litgpt")
_TRL: tuple[Framework, ...] = ("trl",)
_LITGPT: tuple[Framework, ...] = ("litgpt",)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a method. `kind` is the type that it takes; None as `default` leaves it to
    the framework, or to planning where `text` says so; `...` has to be given."""

    kind: Any
    default: Any
    text: str
    frameworks: tuple[Framework, ...] = _TRL

    @property
    def words(self) -> str:
        """What it takes, in words."""
        return accepted(self.kind)

    def accepts(self, value: Any) -> bool:
        """Whether it takes a value, without converting it."""
        try:
            TypeAdapter(self.kind, config=_STRICT).validate_python(value)
        except ValidationError:
            return False
        return True


_EPOCHS_TEXT = (
    "Length as passes over the examples, in place of `steps`. auto: 3 below 1,000 examples, "
    "2 below 10,000, else 1."
)
_EPOCHS = Argument(Positive | Auto, None, _EPOCHS_TEXT)
_BETA = Argument(
    NotNegative,
    0.1,
    "The penalty for leaving the reference model. 0.1 as in Rafailov et al. 2023 (DPO).",
)

ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {
    "sft": {
        "epochs": Argument(Positive | Auto, None, _EPOCHS_TEXT, _BOTH),
        "packing": Argument(
            bool,
            None,
            "Fill sequences with several examples. Decided when planning: yes for plain texts, no "
            "for examples that shall not see each other.",
        ),
        "completion_only_loss": Argument(
            bool, None, "Learn completions but not prompts. TRL's default: where rows have both."
        ),
        "assistant_only_loss": Argument(
            bool, False, "Learn the assistant's messages alone; its chat template must mark them."
        ),
        "mask_prompt": Argument(bool, True, "Learn answers but not instructions.", _LITGPT),
        "prompt_style": Argument(
            Text, "auto", "LitGPT's name of the prompt's form; auto is the model's.", _LITGPT
        ),
    },
    "dpo": {
        "epochs": _EPOCHS,
        "beta": _BETA,
        "loss": Argument(
            Literal["sigmoid", "ipo"],
            "sigmoid",
            "sigmoid is DPO's own; ipo (Azar et al. 2023) holds back where preferences are sure.",
        ),
        "label_smoothing": Argument(
            Share, 0.0, "Share of preferences taken to be the wrong way round."
        ),
    },
    "kto": {
        "epochs": _EPOCHS,
        "beta": Argument(NotNegative, 0.1, "As DPO's. 0.1 as in Ethayarajh et al. 2024 (KTO)."),
        "desirable_weight": Argument(
            Positive, 1.0, "Weight of good examples, to balance them with the bad."
        ),
        "undesirable_weight": Argument(Positive, 1.0, "Weight of bad examples."),
    },
    "reward": {
        "epochs": _EPOCHS,
        "center_rewards_coefficient": Argument(
            NotNegative, None, "Pulls rewards to a mean of zero. Null does not."
        ),
    },
    "grpo": {
        "reward_file": Argument(
            FilePath,
            ...,
            "A Python file of this machine. Its functions named reward or reward_…, called as "
            "`reward(completions, **columns)`, give each completion a number. It travels as the "
            "run's reward.py.",
        ),
        "num_generations": Argument(
            Count, 8, "Completions for each prompt, which are compared; at least 2."
        ),
        "max_completion_length": Argument(
            Count, None, "Tokens of a completion at most. Planned as half of `data.seq_len`."
        ),
        "beta": Argument(
            NotNegative,
            0.0,
            "The penalty for leaving the reference model. 0, as is usual now, loads no reference "
            "model.",
        ),
        "temperature": Argument(Positive, 1.0, "How freely completions are drawn."),
        "top_p": Argument(Share, 1.0, "Share of probability that is drawn from."),
    },
}


def arguments_of(method: str, framework: Framework) -> dict[str, Argument]:
    """The arguments of a method in a framework; none for one that only pretrains."""
    table = ARGUMENTS.get(method, {})
    return {name: one for name, one in table.items() if framework in one.frameworks}


def argument_problems(
    given: Mapping[str, Any], method: str, framework: Framework
) -> Iterator[Problem]:
    """What is wrong with `method_args`."""
    known = arguments_of(method, framework)
    for name, value in given.items():
        field = f"method_args.{name}"
        if name not in known:
            yield _unknown(field, name, method, framework, list(known))
        elif not known[name].accepts(value):
            yield Problem(
                "INVALID_VALUE",
                field,
                f"`{field}` is {value!r}.",
                f"`{field}` takes {known[name].words}.",
            )
    for name, argument in known.items():
        if argument.default is ... and given.get(name) is None:
            yield Problem(
                "MISSING_FIELD",
                f"method_args.{name}",
                f"`method_args.{name}` is missing, which {method} needs.",
                f"Give `method_args.{name}`: {argument.words}.",
            )


def _unknown(field: str, name: str, method: str, framework: Framework, known: list[str]) -> Problem:
    meant = nearest(name, known)
    guess = f" Did you mean `{meant}`?" if meant else ""
    return Problem(
        "UNKNOWN_KEY",
        field,
        f"`{field}` is not an argument of {method} with {framework}.{guess}",
        f"`method_args` takes {', '.join(known)}." if known else "Leave `method_args` out.",
    )
