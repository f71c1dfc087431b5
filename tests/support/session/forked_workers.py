"""`--workers N`: so many processes run the tests, a file at a time, forked once all are collected.

Each worker of pytest-xdist imports the product and collects all tests itself: ten seconds of
computing. Here it begins with what the first process has imported and collected.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections import deque
from collections.abc import Iterator
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

import pytest
from _pytest.capture import FDCapture
from _pytest.config import create_terminal_writer

_FORK = get_context("fork")
# The numbers of tests in `session.items` that a worker runs one after the other.
_Tests = list[int]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="processes that share the files' tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("workers")
    if not count or session.config.option.collectonly:
        return None
    session.config.pluginmanager.get_plugin("terminalreporter").showfspath = False
    _Workers(session).run(count)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    return True


class _Workers:
    """The workers of a session, seen from the process that collected the tests."""

    def __init__(self, session: pytest.Session) -> None:
        self.session, self.config = session, session.config
        self.started = 0
        self.workers: dict[Connection, _Worker] = {}
        numbers = range(len(session.items))
        by_file = groupby(numbers, key=lambda number: session.items[number].path)
        self.waiting: deque[_Tests] = deque(list(tests) for _, tests in by_file)
        # Of this process, so that it is there before the workers' own, which lie in it.
        self.folder: Path = self.config._tmp_path_factory.getbasetemp()

    def run(self, count: int) -> None:
        for _ in range(min(count, len(self.waiting))):
            self._start()
        try:
            self._serve()
        except KeyboardInterrupt:
            for worker in self.workers.values():
                os.kill(worker.process.pid, signal.SIGINT)  # where it was not the whole group's
            for worker in self.workers.values():
                worker.process.join()
            raise

    def _serve(self) -> None:
        while self.workers:
            for connection in wait(list(self.workers)):
                assert isinstance(connection, Connection)
                try:
                    message = connection.recv()
                except EOFError:
                    self._ended(self.workers.pop(connection))
                else:
                    self._take(self.workers[connection], *message)

    @property
    def _is_stopped(self) -> bool:
        return bool(self.session.shouldfail or self.session.shouldstop)

    def _start(self) -> None:
        ours, theirs = _FORK.Pipe()
        others = [ours, *self.workers]
        folder = self.folder / f"worker{self.started}"
        process = _FORK.Process(target=_work, args=(self.session, folder, theirs, others))
        process.start()
        theirs.close()
        self.workers[ours] = _Worker(process, ours)
        self.started += 1

    def _take(self, worker: _Worker, kind: str, *values: Any) -> None:
        hook = self.config.hook
        if kind == "next":
            tests = None if self._is_stopped or not self.waiting else self.waiting.popleft()
            worker.tests += tests or []
            worker.connection.send(tests)
        elif kind == "began":
            worker.tests = worker.tests[worker.tests.index(values[0]) :]
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=self.config, data=values[0])
            hook.pytest_runtest_logreport(report=report)
        elif kind == "finished":
            worker.tests.pop(0)
            hook.pytest_runtest_logfinish(nodeid=values[0], location=values[1])
        elif kind == "warning":
            category, text, file, line, when, nodeid = values
            message = warnings.WarningMessage(text, type(category, (Warning,), {}), file, line)
            hook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": message,
                    "when": when,
                    "nodeid": nodeid,
                    "location": None,
                }
            )

    def _ended(self, worker: _Worker) -> None:
        """What it leaves is another's; the test that it ended in has failed."""
        worker.process.join()
        if self._is_stopped or not worker.tests:
            return
        item = self.session.items[worker.tests.pop(0)]
        text = f"its worker ended with {worker.process.exitcode}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self.config.hook.pytest_runtest_logreport(report=report)
        if worker.tests:
            self.waiting.appendleft(worker.tests)
        self._start()


class _Worker:
    def __init__(self, process: Any, connection: Connection) -> None:
        self.process, self.connection = process, connection
        # The one that it is at, and those that it has still to run.
        self.tests: _Tests = []


class _Reporting:
    """A plugin of a worker: what happens in it is sent to the first process."""

    is_registered = False

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self.config, self.connection = config, connection
        # Registering repeats the first process's own warnings.
        config.pluginmanager.register(self)
        self.is_registered = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self.config.hook
        data = hook.pytest_report_to_serializable(config=self.config, report=report)
        self.connection.send(("report", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int, str]) -> None:
        self.connection.send(("finished", nodeid, location))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        if not self.is_registered:
            return
        category, text = warning_message.category.__name__, str(warning_message.message)
        where = warning_message.filename, warning_message.lineno
        self.connection.send(("warning", category, text, *where, when, nodeid))


def _work(
    session: pytest.Session, folder: Path, connection: Connection, others: list[Connection]
) -> None:
    """Run what the first process gives, until there is nothing more."""
    for other in others:
        other.close()
    with Path(os.devnull).open("w") as nothing:
        _begin(session.config, folder, nothing)
        _Reporting(session.config, connection)
        try:
            _run(session, connection)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process says so
        finally:
            session._setupstate.teardown_exact(None)


def _begin(config: pytest.Config, folder: Path, nothing: TextIO) -> None:
    """Give this process a folder, a terminal and captured output of its own."""
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
    config.workerinput = {"workerid": folder.name}  # type: ignore[attr-defined] # as pytest-xdist
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reporter._tw = create_terminal_writer(config, nothing)
    # The file behind the object, which modules may have kept as their `sys.stderr`.
    capture = config.pluginmanager.get_plugin("capturemanager")._global_capturing
    for stream in (capture.out, capture.err):
        if isinstance(stream, FDCapture):
            with TemporaryFile() as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno())


def _run(session: pytest.Session, connection: Connection) -> None:
    tests = _given(connection)
    number = next(tests, None)
    while number is not None and not session.shouldfail:
        # Before the last test of a file: what the next one needs, too, is kept.
        following = next(tests, None)
        connection.send(("began", number))
        item = session.items[number]
        next_item = None if following is None else session.items[following]
        hook = session.config.hook
        hook.pytest_runtest_protocol(item=item, nextitem=next_item)
        number = following


def _given(connection: Connection) -> Iterator[int]:
    while True:
        connection.send(("next",))
        tests = connection.recv()
        if tests is None:
            return
        yield from tests
