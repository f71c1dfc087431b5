"""The image of a training before its launch: what is refused, and that nothing has begun then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.backends.ssh_hosts import Sshd
from support.host.container_images import (  # noqa: F401 - fixtures
    BARE,
    EMPTY,
    TORCH,
    Podman,
    podman,
    podman_folder,
    registry,
)
from support.runs.running_run import run_async, small_spec

from trainmaster.errors.confirmation import Quote
from trainmaster.errors.errors import SpendError, TrainmasterError
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.planning.plan_run import plan_run
from trainmaster.runs.planning.probe_image import try_image
from trainmaster.settings.policy import agent_policies
from trainmaster.sync.workspace import Workspace

pytestmark = pytest.mark.engine

ABSENT = "localhost/of-another:1"


@pytest.fixture(autouse=True)
def own_podman(podman: Podman) -> Podman:  # noqa: F811
    return podman


@pytest.fixture
def box(workspace: Workspace, own_podman: Podman) -> Iterator[Sshd]:
    """A host over SSH that is `box`, with the same Podman."""
    with Sshd(environment=own_podman.environment) as sshd:
        workspace.control.put_host(sshd.record("box"), t=1.0)
        yield sshd


def boxed(folder: Path, image: str, **changes: str) -> str:
    compute = f"{{threads: 1, launcher: docker, image: {image!r}, shm_size: 64m}}"
    return small_spec(folder, compute=compute, **changes)


def refused(
    workspace: Workspace, spec: str, sets: Sequence[str] = (), *, host: str = "local"
) -> TrainmasterError:
    """Why a launch is refused, of which nothing is left."""
    with pytest.raises(TrainmasterError) as error:
        run_async(lambda: launch(workspace, spec, host=host, sets=sets))
    assert workspace.control.runs() == []
    return error.value


def begun(podman: Podman, root: Path) -> list[str]:  # noqa: F811
    """What a launch would have begun: runs in a host's folder, their processes, containers."""
    runs = [str(path) for path in root.glob("runs/*")]
    return [*runs, *processes_naming(root), *podman.containers()]


def processes_naming(folder: Path) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if "supervise" in words and any(str(folder) in word for word in words):
            found.append(" ".join(words))
    return found


@pytest.mark.parametrize(
    ("image", "what", "fix"),
    [
        (EMPTY, f"compute.image {EMPTY} has no Python", "such as one of pytorch/pytorch"),
        (BARE, f"compute.image {BARE} lacks torch>=2.3", f"`FROM {BARE}`"),
        (ABSENT, f"compute.image {ABSENT} is not among the images", "`podman images`"),
    ],
)
def test_a_launch_names_what_an_image_lacks_before_anything_is_recorded(
    workspace: Workspace, own_podman: Podman, tmp_path: Path, image: str, what: str, fix: str
) -> None:
    error = refused(workspace, boxed(tmp_path, image))
    assert (error.code, error.field, error.retryable) == ("IMAGE_UNUSABLE", "compute.image", False)
    assert what in error.message
    assert fix in error.fix
    assert begun(own_podman, workspace.home.local_root) == []


def test_a_host_over_ssh_is_asked_alike_and_keeps_nothing_of_the_run(
    workspace: Workspace, own_podman: Podman, box: Sshd, tmp_path: Path
) -> None:
    error = refused(workspace, boxed(tmp_path, BARE), host="box")
    assert (error.code, error.field) == ("IMAGE_UNUSABLE", "compute.image")
    assert f"/usr/bin/python3 of compute.image {BARE} lacks torch>=2.3" in error.message
    assert begun(own_podman, Path(box.record("box").root)) == []


def test_an_image_that_its_registry_does_not_have_is_refused_and_one_that_it_has_is_not_pulled(
    workspace: Workspace, own_podman: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"compute": {"launcher": "docker", "shm_size": "64m"}}
    backend = workspace.backend("local")
    with registry(own_podman, "listed") as (address, _):
        listed = str(own_podman.folder / "registries.conf")
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", listed)
        error = refused(workspace, boxed(tmp_path, f"{address}/listed:2"))
        assert error.code == "IMAGE_UNUSABLE"
        assert f"compute.image {address}/listed:2 can't be pulled: " in error.message
        assert "manifest unknown" in error.message
        assert "`podman login`" in error.fix
        config["compute"]["image"] = f"{address}/listed:1"
        assert run_async(lambda: try_image(backend, config, ())) == []
        assert address not in own_podman("images")
    (warning,) = run_async(lambda: try_image(backend, config, ()))
    assert warning.startswith(f"Whether {address}/listed:1 can be pulled is not known (")
    assert "connection refused" in warning


def test_a_plan_says_whether_the_image_is_there_and_runs_nothing_of_it(
    workspace: Workspace, own_podman: Podman, tmp_path: Path
) -> None:
    def reason(image: str) -> str:
        planned = run_async(lambda: plan_run(workspace, boxed(tmp_path, image), host="local"))
        (found,) = (one for one in planned.decisions if one.field == "compute.image")
        assert found.value == image
        return found.reason

    assert reason(EMPTY).startswith("local has it (localhost/empty@sha256:")
    assert reason("127.0.0.1:1/never:1").startswith("local does not have it: launch asks its")
    with pytest.raises(TrainmasterError) as error:
        run_async(lambda: plan_run(workspace, boxed(tmp_path, ABSENT), host="local"))
    assert (error.value.code, error.value.field) == ("IMAGE_UNUSABLE", "compute.image")
    assert "Build or load it there" in error.value.fix
    own_podman(
        "import", "--quiet", "--arch", "s390x", "-", "localhost/foreign:1", data=bytes(10240)
    )
    with pytest.raises(TrainmasterError, match="is for s390x and the host is"):
        run_async(lambda: plan_run(workspace, boxed(tmp_path, "localhost/foreign:1"), host="local"))


def test_an_engine_that_does_not_answer_is_named_before_anything_is_recorded(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    broken = programs / "podman"
    broken.write_text("#!/bin/sh\necho 'Error: no space for the database' >&2\nexit 125\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    error = refused(workspace, boxed(tmp_path, TORCH))
    assert (error.code, error.field) == ("CONTAINER_ENGINE_MISSING", "compute.launcher")
    assert "no container engine answers: podman: Error: no space for the database" in error.message


def test_an_agents_image_is_run_only_after_what_a_person_has_to_allow(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that can't be used would be refused by its name, had it been tried."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    environment = {"HOME": str(tmp_path)}
    workspace.policy_now = agent_policies(workspace.home, environment, reads_only=False)
    spec = boxed(folder, EMPTY, env="{LD_PRELOAD: library.so}")

    async def decline(quote: Quote) -> str:
        raise SpendError("CONFIRMATION_DECLINED", quote.text, "Ask again.")

    with pytest.raises(SpendError, match="run what LD_PRELOAD="):
        run_async(lambda: launch(workspace, spec, host="local", confirm=decline))


def test_a_host_that_does_not_answer_leaves_the_image_to_the_preparation(
    workspace: Workspace, own_podman: Podman
) -> None:
    config = {"compute": {"launcher": "docker", "image": TORCH}}
    with Sshd(environment=own_podman.environment) as sshd:
        workspace.control.put_host(replace(sshd.record("gone"), port=1), t=1.0)
        [warning] = run_async(lambda: try_image(workspace.backend("gone"), config, ()))
    assert "gone did not answer" in warning
