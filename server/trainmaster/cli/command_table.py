"""Which commands there are, and where. A command line imports only the module of its command.

Typer converts every value by Pydantic, text to text and nothing to nothing too; to import that
takes longer than all else that `trainmaster status RUN` does. What has to be converted or refused
still goes Typer's way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from trainer_runtime import __version__
from trainmaster.cli.acting import acts
from trainmaster.cli.examples import epilog

Parameter = TyperArgument | TyperOption
HELP = "--help"
# What Typer lacks: options with a value that may be left out.
_WITH_VALUE = {"--smoke": "--smoke=first"}
# Characters of a sentence that is shown whole.
_WHOLE = 1000
_PACKAGE = "trainmaster.cli.commands"


class Command(TyperCommand):
    """A command that converts only what has to be."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """With the value of an option that may be given without one."""
        return super().parse_args(ctx, [_WITH_VALUE.get(word, word) for word in args])

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and options, `--help` among them."""
        return [_unconverted(parameter) for parameter in super().get_params(ctx)]


class Group(TyperGroup):
    """A group of commands that converts only what has to be."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, `--help` among them."""
        return [_unconverted(parameter) for parameter in super().get_params(ctx)]


def _unconverted(parameter: Any) -> Any:
    """The same, which takes what needs no conversion as it is."""
    convert = parameter.process_value

    def process_value(context: Any, value: Any) -> Any:
        if _is_converted(parameter, value):
            return convert(context, value)
        called = parameter.callback
        return value if called is None else called(context, parameter, value)

    if "process_value" not in vars(parameter):
        vars(parameter)["process_value"] = process_value
    return parameter


def _is_converted(parameter: Parameter, value: Any) -> bool:
    """Whether Typer has to convert or refuse it: not what was not given, nor what has its type
    already, as text and flags have."""
    declared = parameter.type_descriptor
    if declared.parameter_info.parser is not None:
        return True
    if parameter.required and parameter.value_is_missing(value):
        return True
    if parameter.multiple or parameter.nargs == -1:
        is_text = declared.annotation == list[str] and all(
            type(item) is str for item in value or ()
        )
        return bool(value) and not is_text
    return not (value is None or value is parameter.default or type(value) is declared.annotation)


@dataclass(frozen=True, slots=True)
class Listed:
    """One command: its function, and the module of the folder `commands` that holds it.

    `acts`: calls are logged. `name` where it is not the function's. `is_group`: of commands.
    `section`: where `--help` lists it.
    """

    module: str
    function: str
    acts: bool = False
    name: str = ""
    hidden: bool = False
    is_group: bool = False
    section: str = ""

    @property
    def word(self) -> str:
        """What is typed."""
        return self.name or self.function

    def add_to(self, app: typer.Typer, *, as_listed: bool = False) -> None:
        """Add the command to `app`. `as_listed`: only to be listed, without its parameters, which
        Typer takes a third of the time of `--help` to read."""
        declared = getattr(import_module(f"{_PACKAGE}.{self.module}"), self.function)
        if as_listed:
            text = declared.info.help if self.is_group else declared.__doc__
            app.command(self.word, hidden=self.hidden, help=text)(_nothing)
        elif self.is_group:
            app.add_typer(declared, name=self.word)
        else:
            command = acts(self.word)(declared) if self.acts else declared
            described = app.command(
                self.word, cls=Command, hidden=self.hidden, epilog=epilog(self.word)
            )
            described(command)


SEE, TRAIN, WRONG = "See how it goes", "Train", "Find what is wrong"
FILES, MACHINES = "Checkpoints and files", "Machines"
AGENTS, INSTALLATION = "Agents", "This installation"
SECTIONS = (SEE, TRAIN, WRONG, FILES, MACHINES, AGENTS, INSTALLATION)
# In the order of `--help`.
LISTED = (
    Listed("overview", "overview", section=SEE),
    Listed("watch", "watch", section=SEE),
    Listed("board", "board", section=SEE),
    Listed("status", "runs", section=SEE),
    Listed("status", "status", section=SEE),
    Listed("logs", "logs", section=SEE),
    Listed("status", "metrics", section=SEE),
    Listed("plot", "plot", section=SEE),
    Listed("status", "wait", section=SEE),
    Listed("monitor", "monitor", section=SEE),
    Listed("data", "data", is_group=True, section=TRAIN),
    Listed("plan", "plan", section=TRAIN),
    Listed("plan", "launch", acts=True, section=TRAIN),
    Listed("rehearse", "rehearse", acts=True, section=TRAIN),
    Listed("lr_test", "lr_test", acts=True, name="lr-test", section=TRAIN),
    Listed("plan", "render", acts=True, section=TRAIN),
    Listed("plan", "export", acts=True, section=TRAIN),
    Listed("lifecycle", "stop", acts=True, section=TRAIN),
    Listed("lifecycle", "resume", acts=True, section=TRAIN),
    Listed("attach", "attach", acts=True, section=TRAIN),
    Listed("adopt", "adopt", acts=True, section=TRAIN),
    Listed("demo", "demo_command", name="demo", section=TRAIN),
    Listed("diagnose", "diagnose", section=WRONG),
    Listed("inspect", "inspect", section=WRONG),
    Listed("report", "report", section=WRONG),
    Listed("lifecycle", "checkpoints", section=FILES),
    Listed("sample", "sample", acts=True, section=FILES),
    Listed("average", "average", acts=True, section=FILES),
    Listed("fetch", "fetch", acts=True, section=FILES),
    Listed("lifecycle", "clean", acts=True, section=FILES),
    Listed("hosts", "hosts", is_group=True, section=MACHINES),
    Listed("offers", "offers", section=MACHINES),
    Listed("rent", "provision", acts=True, section=MACHINES),
    Listed("rent", "release", acts=True, section=MACHINES),
    Listed("rent", "costs", section=MACHINES),
    Listed("install", "install", acts=True, section=AGENTS),
    Listed("mcp", "mcp", section=AGENTS),
    Listed("mcp_tokens", "mcp_tokens", name="mcp-tokens", is_group=True, section=AGENTS),
    Listed("approve", "approve", acts=True, section=AGENTS),
    Listed("trust", "trust", acts=True, section=AGENTS),
    Listed("maintenance", "doctor", section=INSTALLATION),
    Listed("keeper", "keeper", is_group=True, section=INSTALLATION),
    Listed("maintenance", "tick", acts=True, section=INSTALLATION),
    Listed("alerts", "alerts", is_group=True, section=INSTALLATION),
    Listed("action_log", "log", section=INSTALLATION),
    Listed("maintenance", "replay", acts=True, section=INSTALLATION),
    Listed("maintenance", "tick_part", name="tick-part", hidden=True),
    Listed("maintenance", "transfer", hidden=True),
    Listed("maintenance", "rebuild", hidden=True),
    Listed("maintenance", "read_log", name="read-log", hidden=True),
    Listed("maintenance", "provision_worker", name="provision-worker", hidden=True),
    Listed("alerts", "send_alerts", name="send-alerts", hidden=True),
)


def commands_for(arguments: Sequence[str] = ()) -> typer.Typer:
    """The command that these arguments name; every command where they name none."""
    named = [listed for listed in LISTED if arguments and listed.word == arguments[0]]
    app = typer.Typer(
        name="trainmaster",
        cls=_Sections,
        help="Plan, launch, watch and recover LLM trainings that outlive this session.",
        epilog="With --help, each command shows its options and examples.",
        add_completion=not named,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_group)
    for listed in named or LISTED:
        listed.add_to(app, as_listed=list(arguments) == [HELP])
    return app


def _nothing() -> None:
    """Is not called."""


class _Sections(Group):
    """Lists its commands by sections, with the first sentence of each in full."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for listed in LISTED:
            command = self.get_command(ctx, listed.word)
            if command is not None and listed.section:
                rows[listed.section].append((listed.word, command.get_short_help_str(_WHOLE)))
        for section, rows_of in rows.items():
            if rows_of:
                with formatter.section(section):
                    formatter.write_dl(rows_of)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print("trainmaster", __version__)
        raise typer.Exit()


def _group(
    home: Annotated[
        str | None,
        typer.Option(
            "--home", metavar="DIR", help="The home to work in, instead of TRAINMASTER_HOME's."
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Without it, an only command would be called without its name; `at_home` takes the option."""
