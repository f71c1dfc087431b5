"""The rendered folder of a program that stays on its host: its data lies in it all the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from trainmaster.home.paths import Home
from trainmaster.plan.facts import CodeFacts, ProgramData
from trainmaster.plan.planned import Planned
from trainmaster.runs.export.render_spec import portable

_HOME = Home(Path("/nowhere"))


def test_data_of_a_program_that_stays_on_its_host_awaits_no_upload(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(b"tokens")
    data = ProgramData(name="tokens", path=str(tmp_path), file="tokens.bin", sent_as="data-1")
    config = {
        "script": {"source": None, "data": {"tokens": data.place("/cache")}},
        "inputs": [{"what": "data tokens", "folder": data.folder("/cache")}],
    }
    planned = SimpleNamespace(
        config=config,
        facts=SimpleNamespace(cache_folder="/cache"),
        code=CodeFacts(path="host:/program", in_place=True, data=(data,)),
        spec=SimpleNamespace(host="gpu1"),
    )
    found = portable(cast(Planned, planned), _HOME)
    script = {"source": None, "data": {"tokens": "data/tokens/tokens.bin"}}
    assert found.config == {"script": script}
    assert found.copies == {"data/tokens/tokens.bin": tmp_path / "tokens.bin"}
    assert len(found.warnings) == 1
