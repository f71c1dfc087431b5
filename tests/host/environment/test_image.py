"""The image of a training: found or pulled, tried, and what is said of one that can't be used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.host.container_images import BARE, EMPTY, Podman, registry
from support.host.scripted_processes import CONFIG
from support.runs.running_run import own_run_id

from trainer_runtime.core.config import RunConfig
from trainer_runtime.host.containers.container import Container
from trainer_runtime.host.environment.image import find_image
from trainer_runtime.host.environment.image_trial import ImageRequest, settle_image
from trainer_runtime.host.environment.installers import (
    EnvironmentUnavailableError,
    EnvironmentUnusableError,
)
from trainmaster.home.assets import find_assets

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def own_podman(podman: Podman) -> Podman:
    return podman


def refusal(name: str, folder: Path) -> str:
    """Why nothing can be trained in an image."""
    lines: list[str] = []
    with pytest.raises(EnvironmentUnusableError) as refused:
        settle(name, folder, lines)
    return str(refused.value)


def settle(name: str, folder: Path, lines: list[str]) -> None:
    compute = {"device": "cpu", "launcher": "docker", "image": name, "shm_size": "1g"}
    data = {"sources": [], "cache_dir": str(folder / "cache")}
    document = {**CONFIG, "run_id": own_run_id("boxed"), "compute": compute, "data": data}
    config = RunConfig.parse(document)
    if not (folder / "trainer_runtime").is_symlink():
        shutil.copytree(find_assets().runtime, folder / "trainer_runtime")
    (folder / "cache").mkdir()
    image = find_image(name, folder, lines.append)
    container = Container(image, folder, config, Path("config.json"), {})
    settle_image(ImageRequest(container, ["torch>=2.3"], folder / "cache", lines.append))


def test_an_image_that_is_missing_is_pulled_with_its_digest_and_then_kept(
    podman: Podman,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    with registry(podman, "bare") as (address, digest):
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(podman.folder / "registries.conf"))
        pulled = find_image(f"{address}/bare:1", tmp_path, lines.append)
        assert pulled.digest == f"{address}/bare@{digest}"
        assert f"image: pulling {address}/bare:1" in lines
        assert any("Copying blob" in line for line in lines)
        with pytest.raises(EnvironmentUnusableError, match=r"bare:2 can't be pulled: .*unknown"):
            find_image(f"{address}/bare:2", tmp_path, lines.append)
    # Its registry is gone; what is there is not pulled again, another name may come later.
    assert find_image(f"{address}/bare:1", tmp_path, lines.append) == pulled
    with pytest.raises(EnvironmentUnavailableError, match="connection refused"):
        find_image(f"{address}/bare:3", tmp_path, lines.append)
    podman("rmi", f"{address}/bare:1")


def test_an_image_without_python_is_named_with_what_it_needs(tmp_path: Path) -> None:
    found = refusal(EMPTY, tmp_path)
    assert found.startswith(f"compute.image {EMPTY} has no Python")
    assert "3.10 or newer" in found


def test_an_image_without_pytorch_is_named_with_how_to_build_one(tmp_path: Path) -> None:
    found = refusal(BARE, tmp_path)
    assert f"of compute.image {BARE} lacks torch>=2.3" in found
    assert f"`FROM {BARE}`" in found


def test_an_engine_that_does_not_see_the_runs_folder_is_named_rather_than_the_image(
    tmp_path: Path,
) -> None:
    (tmp_path / "trainer_runtime").symlink_to(find_assets().runtime)  # as on an engine elsewhere
    assert "a container of podman does not see the run's folder" in refusal(BARE, tmp_path)


def test_an_image_for_another_processor_is_refused(
    podman: Podman,
    tmp_path: Path,
) -> None:
    name = "localhost/foreign:1"
    podman("import", "--quiet", "--arch", "s390x", "-", name, data=bytes(10240))
    assert "is for s390x and the host is " in refusal(name, tmp_path)


def test_a_host_without_an_engine_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentUnusableError, match="apt install podman"):
        find_image(BARE, tmp_path, print)


def test_an_image_that_only_another_account_has_is_named_without_a_pull(
    podman: Podman, tmp_path: Path
) -> None:
    lines: list[str] = []
    with pytest.raises(EnvironmentUnusableError, match="not among the images of this account"):
        find_image("localhost/of-another:1", tmp_path, lines.append)
    assert not any("pulling" in line for line in lines)


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("pytorch", "docker.io/library/pytorch"),
        ("pytorch/pytorch:2", "docker.io/pytorch/pytorch:2"),
        ("ghcr.io/a/b", "ghcr.io/a/b"),
    ],
)
def test_a_name_is_completed_as_docker_does(
    given: str, full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "registries.conf"
    domain = full.partition("/")[0]
    nowhere.write_text(f'[[registry]]\nlocation = "{domain}"\nblocked = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(nowhere))
    with pytest.raises((EnvironmentUnavailableError, EnvironmentUnusableError)) as refused:
        find_image(given, tmp_path, lambda _: None)
    assert f"compute.image {full} can't be pulled: " in str(refused.value)
