"""`hosts` and its commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trainmaster.cli.acting import acts
from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask

if TYPE_CHECKING:
    from trainmaster.answers.base import Answer

HostName = Annotated[str, typer.Argument(metavar="NAME", help="What the host is called here.")]

Partition = Annotated[
    str | None, typer.Option("--partition", metavar="NAME", help="Of jobs at Slurm.")
]
Account = Annotated[str | None, typer.Option("--account", metavar="NAME", help="Of jobs at Slurm.")]
Qos = Annotated[str | None, typer.Option("--qos", metavar="NAME", help="Of jobs.")]
Constraint = Annotated[
    str | None,
    typer.Option("--constraint", metavar="FEATURES", help="What nodes of jobs must have."),
]
Gres = Annotated[
    str | None,
    typer.Option("--gres", metavar="TYPE", help="Of GPUs, such as gpu:a100; the plan counts."),
]
Time = Annotated[
    str | None, typer.Option("--time", metavar="12h", help="The most that jobs ask for.")
]
Modules = Annotated[
    list[str] | None,
    typer.Option("--module", metavar="NAME", help="That jobs load; may be repeated."),
]

hosts = typer.Typer(
    help="List hosts, and their state at the last check.",
    rich_markup_mode=None,
    add_completion=False,
)


@hosts.callback(invoke_without_command=True)
def list_hosts(context: typer.Context, as_json: AsJson = False) -> None:
    """List hosts, and their state at the last check."""
    if context.invoked_subcommand is not None:
        return
    from trainmaster.machines import host_registry as service

    _show(ask(service.list_hosts), as_json)


Address = Annotated[
    str,
    typer.Argument(
        metavar="[USER@]ADDRESS[:PORT]", help="Or a Host of your OpenSSH configuration."
    ),
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="FILE", help="Private key to come in with.")
]
Jump = Annotated[
    str | None,
    typer.Option("--jump", metavar="[USER@]ADDRESS[:PORT],...", help="Go through these."),
]
Root = Annotated[str, typer.Option("--root", metavar="DIR", help="Where runs lie on it.")]
Cache = Annotated[
    str | None,
    typer.Option("--cache", metavar="DIR", help="What runs share; `cache` in the root."),
]
Transport = Annotated[
    Literal["asyncssh", "openssh", "paramiko"],
    typer.Option(
        "--transport",
        metavar="asyncssh|openssh|paramiko",
        help="openssh: the system's own ssh, for 2FA, GSSAPI, FIDO keys and ProxyCommand.",
    ),
]
Launcher = Annotated[
    Literal["process", "slurm"],
    typer.Option(
        "--launcher",
        metavar="process|slurm",
        help="slurm: the address is a login node's, and each run is a chain of jobs.",
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Only note it, without a connection.")]


@hosts.command()
@acts("hosts add")
def add(
    name: HostName,
    address: Address,
    *,
    key: Key = None,
    jump: Jump = None,
    root: Root = "~/.trainmaster",
    cache: Cache = None,
    transport: Transport = "asyncssh",
    launcher: Launcher = "process",
    partition: Partition = None,
    account: Account = None,
    qos: Qos = None,
    constraint: Constraint = None,
    gres: Gres = None,
    time: Time = None,
    module: Modules = None,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Add a host. Connects, pins its key and shows the fingerprint; asks nothing."""
    from trainmaster.machines import host_registry as service
    from trainmaster.machines.host_options import HostOptions

    options = HostOptions(
        key=key,
        jump=jump,
        root=root,
        cache=cache,
        transport=transport,
        offline=offline,
        launcher=launcher,
        partition=partition,
        account=account,
        qos=qos,
        constraint=constraint,
        gres=gres,
        time=time,
        modules=",".join(module) if module else None,
    )
    _show(ask(lambda workspace: service.add_host(workspace, name, address, options)), as_json)


@hosts.command()
def check(name: HostName, as_json: AsJson = False) -> None:
    """Check a host. Says what stands between it and a training; exit code 1 where that is much."""
    from trainmaster.machines.check_host import check_host

    answer = ask(lambda workspace: check_host(workspace, name))
    _show(answer, as_json)
    raise typer.Exit(0 if answer.ok else 1)


@hosts.command("set")
@acts("hosts set")
def set_options(
    name: HostName,
    *,
    partition: Partition = None,
    account: Account = None,
    qos: Qos = None,
    constraint: Constraint = None,
    gres: Gres = None,
    time: Time = None,
    module: Modules = None,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Change what a cluster's jobs ask for; '' leaves it to the cluster. Runs take it when they are
    launched, or resumed with --host."""
    from trainmaster.machines.job_options import set_job_options

    options = {
        "partition": partition,
        "account": account,
        "qos": qos,
        "constraint": constraint,
        "gres": gres,
        "time": time,
        "modules": None if module is None else ",".join(filter(None, module)),
    }
    changes = {option: value for option, value in options.items() if value is not None}
    answer = ask(lambda workspace: set_job_options(workspace, name, changes, offline=offline))
    _show(answer, as_json)


@hosts.command()
@acts("hosts trust")
def trust(name: HostName, as_json: AsJson = False) -> None:
    """Pin the key that a host shows now. Shows both fingerprints; compare them with its owner's."""
    from trainmaster.machines import host_registry as service

    _show(ask(lambda workspace: service.trust_host(workspace, name)), as_json)


@hosts.command()
@acts("hosts remove")
def remove(
    name: HostName,
    force: Annotated[
        bool, typer.Option("--force", help="Also where runs are still open on it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Forget a host and its pinned keys. Touches nothing on it."""
    from trainmaster.machines import host_registry as service

    _show(ask(lambda workspace: service.remove_host(workspace, name, force=force)), as_json)


@hosts.command()
@acts("hosts gc")
def gc(
    name: HostName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List only; remove nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove from a host's cache what no run uses: data, environments, uploads."""
    from trainmaster.machines.cache_gc import collect

    _show(ask(lambda workspace: collect(workspace, name, dry_run=dry_run)), as_json)


@hosts.command()
@acts("hosts recover")
def recover(
    name: HostName,
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Also of other homes: those that are named."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record the runs again that lie on a host and that this home has lost, as after a restore."""
    from trainmaster.machines.recover import recover_runs

    _show(ask(lambda workspace: recover_runs(workspace, name, runs or ())), as_json)


def _show(answer: Answer, as_json: bool) -> None:

    emit(answer, as_json)
