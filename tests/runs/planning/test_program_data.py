"""What a program reads beside its own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.errors.errors import PlanError
from trainmaster.home.paths import Home
from trainmaster.plan.spec import load_spec
from trainmaster.runs.planning.program_data import read_data

_HOME = Home(Path("/nowhere"))


def spec(path: object, host: str = "gpu1") -> str:
    return f"""\
name: program
framework: script
host: {host}
script: {{path: /program, command: [train, "{{data}}"]}}
data: {{sources: [{{name: corpus, path: "{path}"}}]}}
"""


def test_a_folder_and_a_file_travel_and_what_is_on_the_host_does_not(tmp_path: Path) -> None:
    (tmp_path / "deep" / "__pycache__").mkdir(parents=True)
    for name in ("deep/b.bin", "a.txt", "deep/__pycache__/c.pyc", ".env"):
        (tmp_path / name).write_text("tokens")
    (found,) = read_data(load_spec(spec(tmp_path)), _HOME)
    assert [name for name, _ in found.files] == ["a.txt", "deep/b.bin"]
    assert found.place("/cache") == f"/cache/models/{found.sent_as}"
    (single,) = read_data(load_spec(spec(tmp_path / "a.txt")), _HOME)
    assert single.place("/cache") == f"/cache/models/{single.sent_as}/a.txt"
    (remote,) = read_data(load_spec(spec("host:/data/corpus")), _HOME)
    assert (remote.place("/cache"), remote.sent_as) == ("/data/corpus", None)
    (local,) = read_data(load_spec(spec(tmp_path / "a.txt", "local")), _HOME)
    assert (local.place("/cache"), local.files) == (str(tmp_path / "a.txt"), ())


@pytest.mark.parametrize("name", ["missing", "empty", ".env"])
def test_what_is_not_there_or_may_not_travel_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / ".env").write_text("TOKEN=1")
    with pytest.raises(PlanError) as caught:
        read_data(load_spec(spec(tmp_path / name)), _HOME)
    assert (caught.value.code, caught.value.field) == ("DATA_MISSING", "data.sources[0].path")
