"""What the data of a spec is, wherever it lies; and what of it has to travel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.runs.running_run import run_async

from trainer_runtime.core.files.corpus import AskedSource, Listing, list_source
from trainmaster.backends.hosted import HostedBackend
from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.launchers import ProcessLauncher
from trainmaster.plan import CorpusFacts, HostFacts, plan
from trainmaster.plan.decisions.disk import check_disk, data_gib
from trainmaster.plan.spec import TrainingSpec, load_spec
from trainmaster.runs.planning.probe_data import look_at_data
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import PlanError, SpecError

SPEC = """\
name: small
framework: nanogpt
model: {{n_layer: 1, n_head: 2, d_model: 32}}
data: {{sources: [{sources}], seq_len: 32, prepare: {prepare}}}
steps: 20
host: {host}
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("some text\n" * 100)
    (folder / "deep/b.txt").write_text("more text\n" * 100)
    return folder


@pytest.fixture
def box(tmp_path: Path) -> HostedBackend:
    """A host that only looks like another machine; its cache is its own."""
    return HostedBackend(LocalHost("box", tmp_path / "box"), ProcessLauncher())


def spec_of(*sources: tuple[str, Path | str], host: str = "box", prepare: str = "auto"):
    listed = ", ".join(f"{{name: {name}, path: '{path}'}}" for name, path in sources)
    return load_spec(SPEC.format(sources=listed, host=host, prepare=prepare))


def facts_of(spec: TrainingSpec, backend: HostedBackend) -> CorpusFacts:
    return run_async(lambda: look_at_data(spec, backend))


def data_of(spec: TrainingSpec, facts: CorpusFacts, host: HostFacts) -> dict:
    return plan(spec, host, facts).config["data"]


def test_the_operators_files_get_the_same_fingerprint_as_the_boxs_own(
    corpus: Path, box: HostedBackend
) -> None:
    sent = facts_of(spec_of(("main", corpus)), box)
    own = facts_of(spec_of(("main", f"host:{corpus}")), box)
    here = facts_of(spec_of(("main", corpus), host="local"), box)
    assert sent.fingerprint == own.fingerprint == here.fingerprint
    assert (sent.tokens, own.tokens) == (here.tokens, here.tokens)
    assert [facts.sources[0].sent_as for facts in (sent, own, here)] == ["main", None, None]


def test_the_config_says_where_the_box_reads_and_what_is_sent(
    corpus: Path, box: HostedBackend, cpu_host: HostFacts
) -> None:
    file = corpus / "a.txt"
    spec = spec_of(("folder", corpus), ("file", file), ("own", f"host:{corpus}"))
    facts = facts_of(spec, box)
    data = data_of(spec, facts, cpu_host.model_copy(update={"cache": "/mnt/cache"}))
    folder = f"/mnt/cache/sources/{facts.fingerprint}"
    assert [source["path"] for source in data["sources"]] == [
        f"{folder}/folder",
        f"{folder}/file/a.txt",
        str(corpus),
    ]
    assert data["upload"]["sources"] == {"folder": str(corpus), "file": str(file)}
    assert data["upload"]["size_bytes"] == 3000
    assert (data["prepare"], data["cache_dir"]) == ("box", "/mnt/cache")


@pytest.mark.parametrize("prepare", ["auto", "here", "box"])
def test_on_this_machine_nothing_is_sent(
    corpus: Path, workspace: Workspace, cpu_host: HostFacts, prepare: str
) -> None:
    backend = workspace.backend("local")
    spec = spec_of(("main", corpus), host="local", prepare=prepare)
    data = data_of(spec, run_async(lambda: look_at_data(spec, backend)), cpu_host)
    assert data["sources"][0]["path"] == str(corpus)
    assert data["prepare"] == "box" and "upload" not in data


def test_shards_cut_here_are_told_to_the_box(
    corpus: Path, box: HostedBackend, cpu_host: HostFacts
) -> None:
    spec = spec_of(("main", corpus), prepare="here")
    facts = facts_of(spec, box)
    assert data_of(spec, facts, cpu_host)["prepare"] == "here"
    asked_of_box = data_gib(spec_of(("main", corpus)), facts)
    assert data_gib(spec, facts) < asked_of_box  # the texts stay here


@pytest.mark.parametrize("path", ["host:data", "host:", "host:/", "host:/a/../etc", "host:-rf"])
def test_a_path_of_the_box_that_is_not_plain_is_refused(path: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(("main", path))
    assert (caught.value.code, caught.value.field) == ("INVALID_VALUE", "data.sources[0].path")


def test_what_lies_on_the_box_cannot_be_cut_here() -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(("main", "host:/data"), prepare="here")
    assert caught.value.field == "data.prepare"


@pytest.mark.parametrize("where", ["host:", ""])
def test_data_that_is_missing_is_told_wherever_it_should_be(
    tmp_path: Path, box: HostedBackend, cpu_host: HostFacts, where: str
) -> None:
    spec = spec_of(("main", f"{where}{tmp_path}/nowhere $(reboot)"))
    facts = facts_of(spec, box)
    with pytest.raises(PlanError) as caught:
        plan(spec, cpu_host, facts)
    assert (caught.value.code, caught.value.field) == ("DATA_MISSING", "data.sources[0].path")
    assert where in caught.value.message


def test_shards_that_the_box_has_are_seen(corpus: Path, box: HostedBackend, tmp_path: Path) -> None:
    spec = spec_of(("main", corpus))
    facts = facts_of(spec, box)
    assert not facts.cached
    entry = tmp_path / "box/cache/data" / facts.fingerprint
    entry.mkdir(parents=True)
    (entry / "meta.json").write_text('{"v": 1, "sources": []}')
    assert facts_of(spec, box).cached


def test_a_cache_on_a_disk_of_its_own_has_to_hold_the_data(cpu_host: HostFacts) -> None:
    spec = spec_of(("main", "host:/data"))
    small = cpu_host.model_copy(update={"cache": "/mnt/cache", "cache_free_gib": 1.0})
    check_disk(spec, 21.0, 1000, small.model_copy(update={"cache_free_gib": 3.0}), cache_gib=2.0)
    with pytest.raises(PlanError, match="/mnt/cache") as caught:
        check_disk(spec, 5.0, 1000, small, cache_gib=2.0)
    assert (caught.value.code, caught.value.field) == ("DISK_TOO_SMALL", "host")


def test_a_listing_survives_its_way(corpus: Path, box: HostedBackend) -> None:
    paths = [str(corpus), str(corpus / "a.txt"), "/nowhere"]
    told: Sequence[Listing] = run_async(
        lambda: box.list_corpus([AskedSource(path) for path in paths])
    )
    assert list(told) == [list_source(path) for path in paths]
