"""Which tools a server offers: toolsets, personas, single tools, and what only reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from trainmaster.errors.errors import UsageError
from trainmaster.mcp.definition import Definition
from trainmaster.mcp.tools import observe, operate, planning, rent
from trainmaster.settings.roles import ROLES, Role

# In the order in which tools are listed. Each tool is in one set.
TOOLSETS: dict[str, tuple[Definition, ...]] = {
    "observe": observe.TOOLS,
    "plan": planning.TOOLS,
    "operate": operate.TOOLS,
    "provision": rent.TOOLS,
}


@dataclass(frozen=True, slots=True)
class Persona:
    """Who the agent is: the toolsets that it needs. `does`: in a sentence, for the reference."""

    toolsets: tuple[str, ...]
    does: str


PERSONAS = {
    "observer": Persona(("observe",), "Reports how trainings stand, and why one fails."),
    "planner": Persona(("observe", "plan"), "Also estimates, and compares hosts and prices."),
    "operator": Persona(
        ("observe", "plan", "operate"), "Also runs trainings on the hosts there are; rents none."
    ),
    "renter": Persona(tuple(TOOLSETS), "Also rents instances. The default."),
}


# Of the role `read`, what only reads.
TOOLSETS_OF_ROLES: dict[Role, tuple[str, ...]] = {
    "read": PERSONAS["planner"].toolsets,
    "operate": PERSONAS["operator"].toolsets,
    "spend": PERSONAS["renter"].toolsets,
}


def role_for(definition: Definition) -> Role:
    """The least role that may call a tool."""
    toolset = next(name for name, tools in TOOLSETS.items() if definition in tools)
    return next(
        role
        for role in ROLES
        if toolset in TOOLSETS_OF_ROLES[role] and (definition.only_reads or role != "read")
    )


def chosen_tools(
    toolsets: Sequence[str] = (), tools: Sequence[str] = (), *, read_only: bool = False
) -> list[Definition]:
    """The tools of the named toolsets and personas, and the named `tools`, in a fixed order.

    Where nothing is named all of them; where only `tools` are, these alone. Of what was chosen
    `read_only` leaves what only reads.

    Raises:
        UsageError: `BAD_ARGUMENT`, a name is unknown, or no tool is left.
    """
    sets = _toolsets_of(toolsets or (() if tools else TOOLSETS))
    _refuse_unknown(tools, _names(), "tool", "tools")
    chosen = [
        definition
        for toolset, definitions in TOOLSETS.items()
        for definition in definitions
        if toolset in sets or definition.name in tools
    ]
    left = [definition for definition in chosen if definition.only_reads or not read_only]
    if not left:
        raise UsageError(
            "BAD_ARGUMENT",
            "No tool is left to offer: each of those that were chosen acts.",
            "Leave out --read-only, or choose a toolset that reads: observe or plan.",
            field="read_only",
        )
    return left


def _toolsets_of(names: Iterable[str]) -> set[str]:
    named = list(names)
    _refuse_unknown(named, [*TOOLSETS, *PERSONAS], "toolset", "toolsets")
    toolsets = set[str]()
    for name in named:
        toolsets.update(PERSONAS[name].toolsets if name in PERSONAS else (name,))
    return toolsets


def _refuse_unknown(
    names: Iterable[str], choices: Collection[str], kind: str, parameter: str
) -> None:
    for name in names:
        if name not in choices:
            raise UsageError(
                "BAD_ARGUMENT",
                f"Unknown {kind} {name!r}.",
                f"Choose among: {', '.join(choices)}.",
                field=parameter,
            )


def _names() -> list[str]:
    return [definition.name for definitions in TOOLSETS.values() for definition in definitions]
