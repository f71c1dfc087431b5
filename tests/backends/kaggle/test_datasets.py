"""Private data sets: a cache's entries, sent once and found again, and what is secret."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.kaggle.recording_client import Asked, asking
from support.kaggle.site import KaggleSite, serving_kaggle

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.corpus import Source, list_files, listing_digest
from trainer_runtime.host.kaggle.session_inputs import link_cache
from trainer_runtime.host.prepare.uploads import await_sources
from trainmaster.backends.hosts.tree_files import TreeFile, files_of_folder
from trainmaster.backends.kaggle.datasets import Datasets
from trainmaster.errors.errors import CloudError, PlanError
from trainmaster.home.paths import Home

SECRET = {"secrets.json": b'{"v":1,"generation":1,"values":{"HF_TOKEN":"hf_0123456789"}}'}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaggleSite]:
    with serving_kaggle(tmp_path_factory.mktemp("site") / "kaggle") as site:
        yield site


@pytest.fixture(scope="module")
def asked(serving: KaggleSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with asking(tmp_path_factory.mktemp("client"), serving.environment) as asked:
        yield asked


@pytest.fixture
def site(serving: KaggleSite) -> Iterator[KaggleSite]:
    """Without the data sets of other tests."""
    serving.datasets.clear()
    serving.asked.clear()
    yield serving
    assert serving.open_faults == []


@pytest.fixture
def datasets(asked: Asked, site: KaggleSite, tmp_path: Path) -> Datasets:
    return Datasets(Home(tmp_path / "home"), asked.client)


@pytest.fixture
def shards(tmp_path: Path) -> Sequence[TreeFile]:
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "train-main.bin").write_bytes(bytes(range(256)) * 300)
    (folder / "val-main.bin").write_bytes(b"\1\2" * 50)
    (folder / "meta.json").write_text("{}")
    return files_of_folder(folder)


def test_an_entry_of_the_cache_lies_in_a_private_data_set_as_it_does_there(
    asked: Asked, site: KaggleSite, datasets: Datasets, shards: Sequence[TreeFile], tmp_path: Path
) -> None:
    ref = asked(datasets.put("data/0123456789abcdef", shards))
    assert site.datasets[ref].private
    linked = link_cache(site.dataset(ref.split("/")[1]), tmp_path / "cache")
    assert linked == ["data/0123456789abcdef"]
    entry = tmp_path / "cache" / "data" / "0123456789abcdef"
    assert {path.name: path.read_bytes() for path in entry.iterdir()} == {
        file.name: Path(str(file.source)).read_bytes() for file in shards
    }
    assert list((tmp_path / "home" / "kaggle-clients").iterdir()) == []


def test_what_is_there_is_found_by_later_runs_and_never_sent_twice(
    asked: Asked, site: KaggleSite, datasets: Datasets, shards: Sequence[TreeFile], tmp_path: Path
) -> None:
    first = asked(datasets.put("data/0123456789abcdef", shards))
    sent = site.asked["Upload"]
    elsewhere = Datasets(Home(tmp_path / "other"), asked.client)
    assert asked(elsewhere.put("data/0123456789abcdef", shards)) == first
    assert site.asked["Upload"] == sent
    assert asked(datasets.put("data/fedcba9876543210", shards)) != first


def test_another_content_under_the_same_name_is_another_data_set(
    asked: Asked, datasets: Datasets, shards: Sequence[TreeFile]
) -> None:
    first = asked(datasets.put("data/0123456789abcdef", shards))
    file = Path(str(shards[0].source))
    status = file.stat()
    file.write_bytes(b"\0" * shards[0].size_bytes)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert asked(datasets.put("data/0123456789abcdef", shards)) != first


def test_sources_that_were_mounted_are_taken_as_if_they_had_been_sent(
    asked: Asked, site: KaggleSite, datasets: Datasets, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    (corpus / "deep").mkdir(parents=True)
    (corpus / "deep" / "a.txt").write_text("some text\n")
    (corpus / "b.txt").write_text("more of it\n")
    source = Source("main", str(corpus), list_files(corpus))
    files = [
        TreeFile(
            f"main/{one.name}", one.size_bytes, one.modified_ns, 0o644, None, corpus / one.name
        )
        for one in source.files
    ]
    ref = asked(datasets.put("sources/0123456789abcdef", files, mark=True))
    link_cache(site.dataset(ref.split("/")[1]), tmp_path / "cache")
    upload = {"sources": {"main": str(corpus)}, "listing": listing_digest([source])}
    data = {"cache_dir": str(tmp_path / "cache"), "fingerprint": "0123456789abcdef"}
    config = {"data": {**data, "prepare": "box", "upload": {**upload, "size_bytes": 21}}}
    assert await_sources(RunConfig.parse(config), lambda: False, print) == {"main": source.files}


def test_a_data_set_whose_making_was_not_answered_is_there_once(
    asked: Asked, site: KaggleSite, datasets: Datasets, shards: Sequence[TreeFile]
) -> None:
    site.fail("CreateDataset", "lose")
    ref = asked(datasets.put("data/0123456789abcdef", shards))
    assert list(site.datasets) == [ref]
    assert len(site.datasets[ref].versions) == 1


def test_a_file_that_is_not_taken_in_makes_no_data_set_without_it(
    asked: Asked, site: KaggleSite, datasets: Datasets, shards: Sequence[TreeFile]
) -> None:
    site.fail("Upload", "500")
    with pytest.raises(CloudError) as raised:
        asked(datasets.put("data/0123456789abcdef", shards))
    assert (raised.value.code, raised.value.retryable) == ("KAGGLE_UNREACHABLE", True)
    assert site.datasets == {}
    asked(datasets.put("data/0123456789abcdef", shards))
    assert len(site.datasets) == 1


def test_a_file_that_changes_during_the_upload_is_an_error_and_nothing_is_kept(
    asked: Asked, site: KaggleSite, datasets: Datasets, shards: Sequence[TreeFile]
) -> None:
    os.utime(Path(str(shards[0].source)), (1, 1))
    with pytest.raises(PlanError) as raised:
        asked(datasets.put("data/0123456789abcdef", shards))
    assert raised.value.code == "DATA_CHANGED"
    assert site.datasets == {}


def test_secrets_have_a_data_set_of_their_own_until_they_are_removed(
    asked: Asked, site: KaggleSite, datasets: Datasets
) -> None:
    first = asked(datasets.put_secrets("run-abcdef", 1, SECRET))
    second = asked(datasets.put_secrets("run-abcdef", 2, SECRET))
    other = asked(datasets.put_secrets("run-ghijkl", 1, SECRET))
    assert len({first, second, other}) == 3
    assert all(site.datasets[ref].private for ref in (first, second, other))
    mounted = site.dataset(first.split("/")[1])
    assert {path.name: path.read_bytes() for path in mounted.iterdir()} == SECRET
    asked(datasets.remove_secrets("run-abcdef", but=2))
    assert set(site.datasets) == {second, other}
    asked(datasets.remove_secrets("run-abcdef"))
    asked(datasets.remove_secrets("run-abcdef"))
    assert set(site.datasets) == {other}


def test_secrets_whose_sending_was_not_answered_are_removed_all_the_same(
    asked: Asked, site: KaggleSite, datasets: Datasets
) -> None:
    site.fail("GetDatasetStatus", "500")
    with pytest.raises(CloudError):
        asked(datasets.put_secrets("run-abcdef", 1, SECRET))
    asked(datasets.put_secrets("run-abcdef", 1, SECRET))
    site.fail("DeleteDataset", "500")
    with pytest.raises(CloudError):
        asked(datasets.remove_secrets("run-abcdef"))
    asked(datasets.remove_secrets("run-abcdef"))
    assert site.datasets == {}


def test_our_data_sets_are_listed_page_by_page(
    asked: Asked, site: KaggleSite, datasets: Datasets
) -> None:
    site.page_size = 2
    for number in range(3):
        asked(datasets.put_secrets(f"run-{number}", 1, SECRET))
    assert len(asked(asked.client.datasets("tm-s-"))) == 3
    assert json.dumps(asked(asked.client.datasets("tm-other"))) == "{}"
