"""`python3 -m trainer_runtime COMMAND`: commands that client and `train.sh` call on the host."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from trainer_runtime.core.files.private import make_private
from trainer_runtime.core.protocol.lines import ExitCode

Options = argparse.Namespace
# Most commands end before they could collect anything, and the rest collect a few MB later.
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
# They inherit the one of their parent: a supervisor that `start` began, which is private, or
# a Kaggle session and train.sh, whose files are for others to read.
_KEEP_UMASK = ("supervise", "hold", "prepare", "train", "ranks", "mirror", "seal")


class Argument(NamedTuple):
    """One of a command's arguments, as `argparse` takes it."""

    name: str
    settings: dict[str, Any]


class Command(NamedTuple):
    help: str
    run: Callable[[Options], int]
    arguments: tuple[Argument, ...]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser(words).parse_args(words)
    if options.command not in _KEEP_UMASK:
        make_private()
    return COMMANDS[options.command].run(options)


def _supervise(options: Options) -> int:
    from trainer_runtime.box.supervise.start import supervise

    return supervise(_folder(options), options.report)


def _start(options: Options) -> int:
    from trainer_runtime.box.supervise.detach import start_detached

    answer = start_detached(_folder(options))
    return _print(answer.to_dict(), code=0 if answer.error is None else 1)


def _supervised(_options: Options) -> int:
    from trainer_runtime.box.answer.supervised import supervised

    return _print(supervised(sys.stdin.read()))


def _cancel(options: Options) -> int:
    import signal

    from trainer_runtime.box.files.layout import RunFolder
    from trainer_runtime.box.supervise.job import cancel_job, signal_job

    run = RunFolder(_folder(options))
    if options.signal is None:
        return _print({"found": cancel_job(run)})
    return _print({"found": signal_job(run, signal.Signals[options.signal])})


def _hold(options: Options) -> int:
    from trainer_runtime.box.processes.hold import hold

    return hold(_folder(options), options.attempt)


def _train(options: Options) -> int:
    from trainer_runtime.box.supervise import standalone

    standalone.train(Path(options.config), this_python=options.this_python)


def _ranks(options: Options) -> int:
    from trainer_runtime.box.processes.ranks import run_ranks

    return run_ranks(Path(options.config))


def _seal(options: Options) -> int:
    from trainer_runtime.box.script import seal

    return seal.main(_folder(options))


def _prepare(options: Options) -> int:
    from trainer_runtime.box.prepare import preparation

    return preparation.main(options.config, data_only=options.data_only)


def _facts(options: Options) -> int:
    from trainer_runtime.box.answer.facts import examine

    return _print(examine(Path(options.root), Path(options.cache) if options.cache else None))


def _source(options: Options) -> int:
    from trainer_runtime.box.attach.examine_source import examine_source

    return _print(
        examine_source(options.kind, options.target, options.begin, options.root, options.pattern)
    )


def _output(options: Options) -> int:
    from importlib.util import find_spec

    from trainer_runtime.box.environment.checkpoint_reader import become_reader

    become_reader(["output", "--", options.folder], Path(options.cache) if options.cache else None)
    if find_spec("torch") is None:
        print(f"{sys.executable} has no PyTorch", file=sys.stderr)
        return ExitCode.UNUSABLE
    from trainer_runtime.train.foreign.inspect import inspect_output

    return _print(inspect_output(options.folder))


def _corpus(options: Options) -> int:
    from trainer_runtime.box.answer.list_corpus import list_corpus

    return _print(list_corpus(options.asked, options.cache, options.fingerprint))


def _input(options: Options) -> int:
    from trainer_runtime.box.answer.examine_input import examine_input

    return _print(examine_input(options.kind, options.name, options.revision))


def _check(options: Options) -> int:
    from trainer_runtime.box.answer.check import check

    return _print(check(Path(options.root), Path(options.cache), options.within))


def _collect(options: Options) -> int:
    from trainer_runtime.box.answer.gc import collect

    named = sys.stdin.read() if options.named else ""
    cache, runs = Path(options.cache), Path(options.runs)
    return _print(collect(cache, runs, named, dry_run=options.dry_run).to_dict())


def _try_folder(options: Options) -> int:
    from trainer_runtime.box.answer.try_folder import try_folder

    return _print(try_folder(Path(options.path), write=options.write))


def _remove(options: Options) -> int:
    from trainer_runtime.core.files.durable import remove_tree

    return _print({"freed_bytes": remove_tree(Path(options.path))})


def _follow(options: Options) -> int:
    from trainer_runtime.box.answer.follow import follow

    return follow(sys.stdin.fileno(), sys.stdout.fileno())


def _files(options: Options) -> int:
    from trainer_runtime.box.answer.list_files import print_files

    return print_files(_folder(options), options)


def _mirror(options: Options) -> int:
    from trainer_runtime.box.checkpoints import copy

    return copy.main(_folder(options), Path(options.destination), options.name)


def _alert(options: Options) -> int:
    from trainer_runtime.box.alerts import post

    return post.main()


def _verify(options: Options) -> int:
    from trainer_runtime.box.answer.verify import verify_checkpoints

    return _print(verify_checkpoints(_folder(options)))


def _lease(options: Options) -> int:
    from trainer_runtime.box.lease import timer

    root = Path(options.root).resolve()
    if options.start:
        return _print(timer.ensure_timer(root).to_dict())
    return _print(timer.timer_status(root).to_dict()) if options.report else timer.keep(root)


def _inspect(options: Options) -> int:
    from trainer_runtime.box.files.layout import RunFolder
    from trainer_runtime.box.watch.inspection import inspect, report

    run = RunFolder(_folder(options))
    found = inspect(run, options.attempt, allow_py_spy=options.allow_py_spy)
    return _print(report(found).to_dict())


def _folder(options: Options) -> Path:
    return Path(options.run).resolve()


def _print(answer: object, code: int = 0) -> int:
    print(json.dumps(answer))
    return code


def _argument(name: str, **settings: Any) -> Argument:
    return Argument(name, settings)


_RUN = _argument("run", nargs="?", default=".")
_CACHE = _argument("cache")
COMMANDS = {
    "supervise": Command(
        "supervise a run in the foreground",
        _supervise,
        (
            _RUN,
            _argument("--report", type=int, metavar="PIPE", help="where to report that it runs"),
        ),
    ),
    "start": Command("make sure that a supervisor runs, detached", _start, (_RUN,)),
    "supervised": Command(
        "which runs that standard input names have a supervisor", _supervised, ()
    ),
    "cancel": Command(
        "end a run's supervisor and all that it keeps running, at once",
        _cancel,
        (
            _argument("--signal", metavar="NAME", help="send this to the supervisor instead"),
            _argument("run"),
        ),
    ),
    "hold": Command(
        "run one attempt's trainer (the supervisor calls it)",
        _hold,
        (_argument("run"), _argument("attempt", type=int)),
    ),
    "train": Command(
        "train in the run's folder without a supervisor (train.sh does)",
        _train,
        (
            _argument("config"),
            _argument(
                "--this-python",
                action="store_true",
                help="with this interpreter, not the one that was prepared",
            ),
        ),
    ),
    "ranks": Command(
        "run the several ranks of one attempt (its command line does)",
        _ranks,
        (_argument("config"),),
    ),
    "seal": Command("keep a program's checkpoint, as standard input asks", _seal, (_RUN,)),
    "prepare": Command(
        "prepare the environment and the data's shards",
        _prepare,
        (
            _argument("config"),
            _argument("--data-only", action="store_true", help="leave the environment alone"),
        ),
    ),
    "facts": Command(
        "what this machine has to offer a training",
        _facts,
        (_argument("root"), _argument("cache", nargs="?")),
    ),
    "source": Command(
        "find what is to be watched",
        _source,
        (
            _argument("--begin", choices=("start", "end"), default="start"),
            _argument("--root", help="the folder of this host's runs"),
            _argument("--pattern", help="the shape of the log's lines"),
            _argument("kind", choices=("log", "tmux", "screen", "pid")),
            _argument("target"),
        ),
    ),
    "output": Command(
        "recognise a training's output folder, and verify its checkpoints (needs PyTorch)",
        _output,
        (
            _argument("--cache", help="search there, too, for an interpreter that has PyTorch"),
            _argument("folder"),
        ),
    ),
    "corpus": Command(
        "list the documents at paths",
        _corpus,
        (
            _argument("--cache", help="where shards are kept"),
            _argument("--fingerprint", help="report whether these shards are complete"),
            _argument("--asked", default="[]", help="paths with format and method, as JSON"),
        ),
    ),
    "input": Command(
        "report which model or tokenizer a folder holds",
        _input,
        (
            _argument("--revision", help="of the hub's model"),
            _argument("kind", choices=("model", "tokenizer", "cached")),
            _argument("name"),
        ),
    ),
    "check": Command(
        "what stands between this machine and a training",
        _check,
        (
            _argument("root"),
            _CACHE,
            _argument("--within", type=float, default=60.0, metavar="SECONDS"),
        ),
    ),
    "gc": Command(
        "remove from the cache what no run uses",
        _collect,
        (
            _CACHE,
            _argument("runs"),
            _argument("--dry-run", action="store_true", help="only report"),
            _argument("--named", action="store_true", help="what standard input names stays too"),
        ),
    ),
    "try": Command(
        "whether a folder can be written",
        _try_folder,
        (
            _argument("--write", action="store_true", help="by writing there, for a moment"),
            _argument("path"),
        ),
    ),
    "remove": Command(
        "remove a file or folder, and report the bytes freed", _remove, (_argument("path"),)
    ),
    "follow": Command("stream new data of runs' files, as standard input asks", _follow, ()),
    "files": Command(
        "list what a pattern means in a run's folder",
        _files,
        (_argument("run"), _argument("pattern")),
    ),
    "digest": Command(
        "the sha256 of 64 MiB of one of a run's files",
        _files,
        (
            _argument("run"),
            _argument("path"),
            _argument("chunk", type=int),
            _argument("size", type=int),
        ),
    ),
    "inspect": Command(
        "report where an attempt's processes are, and what blocks them",
        _inspect,
        (
            _argument("run"),
            _argument("attempt", type=int),
            _argument("--allow-py-spy", action="store_true", help="also read a foreign process"),
        ),
    ),
    "mirror": Command(
        "copy checkpoints to another disk",
        _mirror,
        (_argument("run"), _argument("destination"), _argument("name", nargs="*")),
    ),
    "lease": Command(
        "keep the lease of the instance that a root is on, and end the instance with it",
        _lease,
        (
            _argument("root"),
            _argument("--start", action="store_true", help="make sure that one does, detached"),
            _argument("--report", action="store_true", help="only report its status"),
        ),
    ),
    "alert": Command("post a message that standard input describes", _alert, ()),
    "verify": Command("read every byte of every checkpoint and report damage", _verify, (_RUN,)),
}


def _parser(words: list[str]) -> argparse.ArgumentParser:
    """Of the command that is named alone where one is: all of them take longer than most run."""
    named = [name for name in words[:1] if name in COMMANDS]
    parser = argparse.ArgumentParser(prog="trainer_runtime", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in named or COMMANDS:
        added = commands.add_parser(name, help=COMMANDS[name].help)
        for argument in COMMANDS[name].arguments:
            added.add_argument(argument.name, **argument.settings)
    return parser


if __name__ == "__main__":
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    code = main()
    gc.freeze()  # else the collection at exit walks all that was imported
    sys.exit(code)
