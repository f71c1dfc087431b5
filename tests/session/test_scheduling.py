"""Which worker runs which file."""

from __future__ import annotations

from pathlib import Path

from support.session.scheduling import HeavyTogether, is_heavy, workers_for


class Worker:
    """What the scheduler knows of a process that runs tests."""

    def __init__(self, name: str, tests: list[str]) -> None:
        self._tests = tests
        self.gateway = self
        self.id = name
        self.ran: list[str] = []
        self.shutting_down = False

    def send_runtest_some(self, places: list[int]) -> None:
        self.ran += [self._tests[place] for place in places]

    def shutdown(self) -> None:
        self.shutting_down = True


def test_files_that_import_frameworks_go_to_workers_of_their_own(
    pytestconfig: object, tmp_path: Path
) -> None:
    light = [str(_file(tmp_path, f"light_{n}.py", "import json\n")) for n in range(6)]
    heavy = [
        str(_file(tmp_path, f"heavy_{n}.py", "def f():\n    import torch\n")) for n in range(2)
    ]
    tests = [f"{file}::test" for file in (*light[:3], *heavy, *light[3:])]
    workers = [Worker(f"gw{n}", tests) for n in range(4)]
    scheduler = HeavyTogether(_Config(pytestconfig))
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    assert workers[0].ran == [f"{file}::test" for file in heavy]
    assert sorted(ran for worker in workers for ran in worker.ran) == sorted(tests)


def test_workers_are_kept_for_heavy_files_by_their_share_of_the_time() -> None:
    seconds = {"heavy": 30.0, "light": 80.0}
    assert [workers_for({"heavy"}, seconds, seconds, of) for of in (1, 2, 8)] == [1, 1, 3]
    assert workers_for(set(), seconds, seconds, 8) == 0
    assert workers_for(seconds, seconds, seconds, 8) == 8


def test_a_file_that_names_a_framework_in_a_text_alone_is_light(tmp_path: Path) -> None:
    assert not is_heavy(_file(tmp_path, "text.py", 'PROGRAM = "import torch"\n'))


def _file(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


class _Config:
    """The session's configuration, with four workers."""

    def __init__(self, config: object) -> None:
        self._config = config

    def __getattr__(self, name: str) -> object:
        return getattr(self._config, name)

    def getvalue(self, name: str) -> object:
        return ["popen"] * 4 if name == "tx" else getattr(self._config.option, name)  # type: ignore[attr-defined]
