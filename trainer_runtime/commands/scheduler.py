"""Commands for clusters: those of the login node, and the one that a job runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from trainer_runtime.commands.command import (
    RUN,
    Argument,
    Command,
    Options,
    print_answer,
    run_folder,
)


def _submit(options: Options) -> int:
    from trainer_runtime.host.files.layout import RunFolder
    from trainer_runtime.host.slurm.submit import check, submit

    run = RunFolder(run_folder(options))

    def answer() -> object:
        if options.check:
            untried = check(run)
            return {} if untried is None else {"untried": untried}
        return submit(run).to_dict()

    return _answered(answer)


def _jobs(options: Options) -> int:
    from trainer_runtime.host.slurm.queue import jobs_of

    asked = sys.stdin.read()
    return _answered(lambda: jobs_of(asked, fresh=options.fresh, keep=options.keep))


def _end_job(options: Options) -> int:
    from trainer_runtime.host.files.layout import RunFolder
    from trainer_runtime.host.slurm.submit import cancel

    run = RunFolder(run_folder(options))
    return _answered(lambda: {"found": cancel(run, options.signal)})


def _session(options: Options) -> int:
    from trainer_runtime.host.slurm.session import run_node, run_session

    return run_node(run_folder(options)) if options.node else run_session(run_folder(options))


def _meet(_options: Options) -> int:
    from trainer_runtime.host.slurm.meet import meet

    return meet(sys.stdin, sys.stdout)


def _cluster(options: Options) -> int:
    from trainer_runtime.host.slurm.cluster import describe_cluster

    root, modules = Path(options.root), options.module or ()
    given = {"account": options.account, "qos": options.qos, "whole": options.whole}
    return _answered(lambda: describe_cluster(root, modules, **given).to_dict())


def _answered(answer: Callable[[], object]) -> int:
    """Print an answer, or what Slurm refuses with."""
    from trainer_runtime.host.slurm.programs import SlurmError

    try:
        return print_answer(answer())
    except SlurmError as error:
        return print_answer({"refused": error.refusal})


COMMANDS = {
    "submit": Command(
        "make sure that a run has a job at Slurm, where it needs one",
        _submit,
        (
            Argument.of("--check", action="store_true", help="only whether it could begin"),
            RUN,
        ),
    ),
    "jobs": Command(
        "the jobs at Slurm of the runs that standard input names",
        _jobs,
        (
            Argument.of("--fresh", action="store_true", help="not from a list of the last seconds"),
            Argument.of("--keep", action="store_true", help="keep the list for the next call"),
        ),
    ),
    "end_job": Command(
        "end a run's job at Slurm, with all that it runs, at once",
        _end_job,
        (
            Argument.of("--signal", metavar="NAME", help="send this to its supervisor instead"),
            Argument.of("run"),
        ),
    ),
    "session": Command(
        "supervise a run within a job of Slurm (job.sh does)",
        _session,
        (
            Argument.of("--node", action="store_true", help="as a further node of the job"),
            RUN,
        ),
    ),
    "meet": Command("connect to the first node of a job (its session does)", _meet, ()),
    "cluster": Command(
        "the partitions of the cluster that this machine is a login node of",
        _cluster,
        (
            Argument.of("--whole", action="store_true", help="with modules, quota and accounts"),
            Argument.of("--module", action="append", help="whether the cluster has it"),
            Argument.of("--account", help="that jobs are charged to"),
            Argument.of("--qos", help="of jobs"),
            Argument.of("root"),
        ),
    ),
}
