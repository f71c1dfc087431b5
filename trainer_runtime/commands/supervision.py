"""Commands that run a training: supervisor, trainer, ranks, preparation."""

from __future__ import annotations

import sys
from pathlib import Path

from trainer_runtime.commands.command import (
    RUN,
    Argument,
    Command,
    Options,
    print_answer,
    run_folder,
)


def _supervise(options: Options) -> int:
    from trainer_runtime.host.supervise.start import supervise

    return supervise(run_folder(options), options.report)


def _start(options: Options) -> int:
    from trainer_runtime.host.supervise.detach import start_detached

    answer = start_detached(run_folder(options))
    return print_answer(answer.to_dict(), code=0 if answer.error is None else 1)


def _supervised(_options: Options) -> int:
    from trainer_runtime.host.answer.supervised import supervised

    return print_answer(supervised(sys.stdin.read()))


def _cancel(options: Options) -> int:
    import signal

    from trainer_runtime.host.files.layout import RunFolder
    from trainer_runtime.host.supervise.job import cancel_job, signal_job

    run = RunFolder(run_folder(options))
    if options.signal is None:
        return print_answer({"found": cancel_job(run)})
    return print_answer({"found": signal_job(run, signal.Signals[options.signal])})


def _hold(options: Options) -> int:
    from trainer_runtime.host.processes.hold import hold

    return hold(run_folder(options), options.attempt)


def _train(options: Options) -> int:
    from trainer_runtime.host.supervise import standalone

    standalone.train(Path(options.config), this_python=options.this_python)


def _ranks(options: Options) -> int:
    from trainer_runtime.host.processes.ranks import run_ranks

    return run_ranks(Path(options.config))


def _seal(options: Options) -> int:
    from trainer_runtime.host.script import seal

    return seal.main(run_folder(options))


def _prepare(options: Options) -> int:
    from trainer_runtime.host.prepare import preparation

    return preparation.main(options.config, data_only=options.data_only)


COMMANDS = {
    "supervise": Command(
        "supervise a run in the foreground",
        _supervise,
        (
            RUN,
            Argument.of("--report", type=int, metavar="PIPE", help="where to report that it runs"),
        ),
    ),
    "start": Command("make sure that a supervisor runs, detached", _start, (RUN,)),
    "supervised": Command(
        "which runs that standard input names have a supervisor", _supervised, ()
    ),
    "cancel": Command(
        "end a run's supervisor and all that it keeps running, at once",
        _cancel,
        (
            Argument.of("--signal", metavar="NAME", help="send this to the supervisor instead"),
            Argument.of("run"),
        ),
    ),
    "hold": Command(
        "run one attempt's trainer (the supervisor calls it)",
        _hold,
        (Argument.of("run"), Argument.of("attempt", type=int)),
    ),
    "train": Command(
        "train in the run's folder without a supervisor (train.sh does)",
        _train,
        (
            Argument.of("config"),
            Argument.of(
                "--this-python",
                action="store_true",
                help="with this interpreter, not the one that was prepared",
            ),
        ),
    ),
    "ranks": Command(
        "run the several ranks of one attempt (its command line does)",
        _ranks,
        (Argument.of("config"),),
    ),
    "seal": Command("keep a program's checkpoint, as standard input asks", _seal, (RUN,)),
    "prepare": Command(
        "prepare the environment and the data's shards",
        _prepare,
        (
            Argument.of("config"),
            Argument.of("--data-only", action="store_true", help="leave the environment alone"),
        ),
    ),
}
