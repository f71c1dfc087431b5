"""Which commands there are, and where. A command line imports only the module of its command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import typer

from trainmaster.cli.acting import acts

_PACKAGE = "trainmaster.cli.commands"


@dataclass(frozen=True, slots=True)
class Listed:
    """One command: its function, and the module of the folder `commands` that holds it.

    `acts`: calls are logged. `name` where it is not the function's. `is_group`: of commands.
    """

    module: str
    function: str
    acts: bool = False
    name: str = ""
    hidden: bool = False
    is_group: bool = False

    @property
    def word(self) -> str:
        """What is typed."""
        return self.name or self.function

    def add_to(self, app: typer.Typer) -> None:
        found = getattr(import_module(f"{_PACKAGE}.{self.module}"), self.function)
        if self.is_group:
            app.add_typer(found, name=self.word)
        else:
            command = acts(self.word)(found) if self.acts else found
            app.command(self.word, hidden=self.hidden)(command)


# In the order of `--help`.
LISTED = (
    Listed("overview", "overview"),
    Listed("plan", "plan"),
    Listed("plan", "launch", acts=True),
    Listed("attach", "attach", acts=True),
    Listed("adopt", "adopt", acts=True),
    Listed("status", "runs"),
    Listed("status", "status"),
    Listed("logs", "logs"),
    Listed("status", "metrics"),
    Listed("plot", "plot"),
    Listed("status", "wait"),
    Listed("monitor", "monitor"),
    Listed("watch", "watch"),
    Listed("inspect", "inspect"),
    Listed("diagnose", "diagnose"),
    Listed("lifecycle", "stop", acts=True),
    Listed("lifecycle", "resume", acts=True),
    Listed("lifecycle", "checkpoints"),
    Listed("fetch", "fetch", acts=True),
    Listed("offers", "offers"),
    Listed("lifecycle", "clean", acts=True),
    Listed("rent", "provision", acts=True),
    Listed("rent", "release", acts=True),
    Listed("rent", "costs"),
    Listed("approve", "approve", acts=True),
    Listed("trust", "trust", acts=True),
    Listed("maintenance", "doctor"),
    Listed("maintenance", "tick", acts=True),
    Listed("maintenance", "replay", acts=True),
    Listed("action_log", "log"),
    Listed("install", "install", acts=True),
    Listed("mcp", "mcp"),
    Listed("demo", "demo_command", name="demo"),
    Listed("maintenance", "tick_part", name="tick-part", hidden=True),
    Listed("maintenance", "transfer", hidden=True),
    Listed("maintenance", "read_log", name="read-log", hidden=True),
    Listed("maintenance", "provision_worker", name="provision-worker", hidden=True),
    Listed("hosts", "hosts", is_group=True),
    Listed("alerts", "alerts", is_group=True),
    Listed("keeper", "keeper", is_group=True),
    Listed("alerts", "send_alerts", name="send-alerts", hidden=True),
)


def commands_for(arguments: Sequence[str] = ()) -> typer.Typer:
    """The command that these arguments name; every command where they name none."""
    named = [one for one in LISTED if arguments and one.word == arguments[0]]
    app = typer.Typer(
        name="trainmaster",
        help="Plan, launch, watch and recover LLM trainings that outlive this session.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_group)
    for one in named or LISTED:
        one.add_to(app)
    return app


def _group(
    home: Annotated[
        str | None,
        typer.Option(
            "--home", metavar="DIR", help="The home to work in, instead of TRAINMASTER_HOME's."
        ),
    ] = None,
) -> None:
    """Without it, an only command would be called without its name; `at_home` takes the option."""
