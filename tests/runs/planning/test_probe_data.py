"""What the data of a spec is, wherever it lies; and what of it has to travel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard
from support.plan.planned_spec import planned, refused
from support.runs.running_run import run_async

from trainer_runtime.core.config import FilterConfig, RunConfig
from trainer_runtime.core.files.corpus import AskedSource, Listing, list_source
from trainer_runtime.host.prepare.sources import as_planned
from trainmaster.backends.hosted import HostedBackend
from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.launchers.process import ProcessLauncher
from trainmaster.errors.errors import PlanError, SpecError
from trainmaster.plan import CorpusFacts, HostFacts, plan
from trainmaster.plan.decisions.disk import check_disk, data_gib
from trainmaster.plan.spec import TrainingSpec, load_spec
from trainmaster.runs.planning.probe_data import probe_data
from trainmaster.sync.workspace import Workspace

SPEC = """\
name: small
framework: nanogpt
model: {{n_layer: 1, n_head: 2, d_model: 32}}
data: {{sources: [{sources}], validation: [{validation}], seq_len: 32, prepare: {prepare}}}
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
    """A host that stands in for another machine; it has its own cache."""
    return HostedBackend(LocalHost("box", tmp_path / "box"), ProcessLauncher())


def spec_of(
    *sources: tuple[str, Path | str],
    host: str = "box",
    prepare: str = "auto",
    validation: Path | str | None = None,
):
    listed = ", ".join(f"{{name: {name}, path: '{path}'}}" for name, path in sources)
    own = "" if validation is None else f"{{name: own, path: '{validation}'}}"
    return load_spec(SPEC.format(sources=listed, validation=own, host=host, prepare=prepare))


def facts_of(spec: TrainingSpec, backend: HostedBackend) -> CorpusFacts:
    return run_async(lambda: probe_data(spec, backend))


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


def test_files_for_validation_travel_too_and_the_plan_names_them(
    corpus: Path, box: HostedBackend, cpu_host: HostFacts, tmp_path: Path
) -> None:
    own = tmp_path / "own.txt"
    own.write_text("held out\n" * 50)
    without = facts_of(spec_of(("main", corpus)), box)
    spec = spec_of(("main", corpus), validation=own)
    facts = facts_of(spec, box)
    assert facts.tokens == without.tokens
    assert facts.fingerprint != without.fingerprint
    planned = plan(spec, cpu_host, facts)
    data = planned.config["data"]
    assert data["upload"]["sources"] == {"main": str(corpus), "own": str(own)}
    assert data["upload"]["size_bytes"] == 2450
    (held_out,) = data["validation"]
    assert held_out["path"].endswith(f"/sources/{facts.fingerprint}/own/own.txt")
    said = {one.field: one.value for one in planned.decisions}
    assert said["data.validation"] == "own"
    (of_itself,) = (
        one.value
        for one in plan(spec_of(("main", corpus)), cpu_host, without).decisions
        if one.field == "data.validation"
    )
    assert of_itself == "5%"


@pytest.mark.parametrize(
    ("where", "name", "problem"),
    [
        ("", "a.txt", "is trained on, too"),
        ("", "copy.txt", "a copy of"),
        ("host:", "deep", "is trained on, too"),
    ],
)
def test_validation_that_is_trained_on_is_refused(
    corpus: Path, box: HostedBackend, cpu_host: HostFacts, where: str, name: str, problem: str
) -> None:
    (corpus.parent / "copy.txt").write_bytes((corpus / "a.txt").read_bytes())
    path = corpus.parent / name if name == "copy.txt" else corpus / name
    spec = spec_of(("main", f"{where}{corpus}"), validation=f"{where}{path}")
    with pytest.raises(PlanError, match=problem) as caught:
        plan(spec, cpu_host, facts_of(spec, box))
    assert (caught.value.code, caught.value.field) == ("INVALID_VALUE", "data.validation[0].path")


@pytest.mark.parametrize(
    ("given", "decided", "warned"),
    [("tokens", "main", False), ("tokens/train.bin", "5%", True), ("tokens/val.bin", "5%", False)],
)
def test_validation_tokens_beside_a_files_own_are_named(
    tmp_path: Path,
    workspace: Workspace,
    cpu_host: HostFacts,
    given: str,
    decided: str,
    warned: bool,
) -> None:
    (tmp_path / "tokens").mkdir()
    for name in ("train.bin", "val.bin"):
        (tmp_path / "tokens" / name).write_bytes(bytes([65, 0]) * 300 + name.encode()[:2])
    spec = load_spec(
        "name: small\nframework: nanogpt\nmodel: {n_layer: 1, n_head: 2, d_model: 32}\n"
        "steps: 20\nhost: local\ndata: {seq_len: 32, tokenizer: byte, "
        f"sources: [{{name: main, format: tokens, path: '{tmp_path / given}'}}]}}"
    )
    planned = plan(spec, cpu_host, facts_of(spec, workspace.backend("local")))
    assert {one.field: one.value for one in planned.decisions}["data.validation"] == decided
    said = [warning for warning in planned.warnings if "val.bin lies beside" in warning]
    assert bool(said) is warned


@pytest.mark.parametrize("prepare", ["auto", "here", "box"])
def test_on_this_machine_nothing_is_sent(
    corpus: Path, workspace: Workspace, cpu_host: HostFacts, prepare: str
) -> None:
    backend = workspace.backend("local")
    spec = spec_of(("main", corpus), host="local", prepare=prepare)
    data = data_of(spec, run_async(lambda: probe_data(spec, backend)), cpu_host)
    assert data["sources"][0]["path"] == str(corpus)
    assert data["prepare"] == "box" and "upload" not in data


def test_shards_built_here_are_announced_to_the_host(
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
def test_data_that_is_missing_is_reported_wherever_it_should_be(
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
    listed: Sequence[Listing] = run_async(
        lambda: box.list_corpus([AskedSource(path) for path in paths])
    )
    assert list(listed) == [list_source(path) for path in paths]


def test_compressed_sources_are_planned_by_what_they_hold(
    tmp_path: Path, box: HostedBackend, cpu_host: HostFacts
) -> None:
    line = json.dumps({"text": "some words"}) + "\n"
    content = (line * 5 + "{broken\n" + line * 50_000).encode()
    (tmp_path / "rows.jsonl.zst").write_bytes(zstandard.compress(content))
    spec = spec_of(("main", tmp_path / "rows.jsonl.zst"))
    (source,) = spec.data.sources
    spec = spec.model_copy(
        update={
            "data": spec.data.model_copy(
                update={"sources": [source.model_copy(update={"format": "jsonl"})]}
            )
        }
    )
    facts = facts_of(spec, box)
    assert facts.estimated and facts.tokens == pytest.approx(len(content), rel=0.01)
    made = plan(spec, cpu_host, facts)
    assert "zstandard>=0.22,<0.26" in made.requirements
    decision = next(one for one in made.decisions if one.field == "data.sources[0].compression")
    assert decision.value == "zstd"
    assert any("rows.jsonl.zst, line 6: it is not a JSON" in line for line in made.warnings)
    here = spec.model_copy(update={"data": spec.data.model_copy(update={"prepare": "here"})})
    with pytest.raises(PlanError, match="compressed by zstd"):
        plan(here, cpu_host, facts)


def test_filters_are_part_of_what_the_host_prepares_and_bring_their_packages(
    workspace: Workspace, corpus: Path
) -> None:
    plain = SPEC.format(sources=f"{{path: {corpus}}}", validation="", prepare="auto", host="local")
    filtered = plain.replace("seq_len: 32", "seq_len: 32, filters: {min_chars: 9, pii: mask}")
    made, without = planned(workspace, filtered), planned(workspace, plain)
    data = RunConfig.parse(made.config).data
    assert data.filters == FilterConfig(min_chars=9, pii="mask")
    assert data.fingerprint != without.corpus.fingerprint
    as_planned(data, {})  # refuses another fingerprint than its own
    assert any(line.startswith("datatrove") for line in made.plan.requirements)
    assert not any(line.startswith("datatrove") for line in without.plan.requirements)
    error = refused(workspace, filtered.replace("pii: mask", "language: [en]"))
    assert error.code == "UNKNOWN_KEY" and "data.filters.language" in error.message
