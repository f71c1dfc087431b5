"""The image of the Dockerfile, built on a base made here: server, board and keeper work in it."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
import pytest
import yaml
from mcp import Client, StdioServerParameters
from support.host.container_images import Podman, add_tree
from support.mcp.mcp_client import answer_of
from support.runs.running_run import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.engine]

_ROOT = Path(__file__).resolve().parents[2]
_BASE, _IMAGE = "localhost/python-base:1", "localhost/trainmaster:1"
_OWNER = 10001
# A package index is out of reach here: the base has the libraries, as an index would give them.
_LIBRARIES = Path(yaml.__file__).resolve().parents[1]
_VARIABLES = {
    "PATH": f"{sys.base_prefix}/bin:/usr/bin:/usr/sbin",
    "PYTHONPATH": str(_LIBRARIES),
    "PIP_NO_INDEX": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # which turns it off: the option is the negated one
}
_MOUNTED = ("--volume", f"{_LIBRARIES}:{_LIBRARIES}:ro")


@pytest.fixture(scope="module")
def image(podman_folder: Podman) -> Iterator[Podman]:
    changes = [
        word for name, value in _VARIABLES.items() for word in ("--change", f"ENV={name}={value}")
    ]
    tree = io.BytesIO()
    with tarfile.open(fileobj=tree, mode="w") as archive:
        add_tree(archive)
    podman_folder("import", "--quiet", *changes, "-", _BASE, data=tree.getvalue())
    build = ("build", "--quiet", "--layers=false", "--build-arg", f"BASE={_BASE}", *_MOUNTED)
    podman_folder(*build, "--tag", _IMAGE, str(_ROOT))
    yield podman_folder
    podman_folder("rmi", "--force", _IMAGE, _BASE)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The volume, as the image's user has it."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    os.chown(folder, _OWNER, _OWNER)
    return folder


def words(data: Path, *command: str, options: tuple[str, ...] = ()) -> list[str]:
    """The arguments of `podman run` for a command in the image; none: what the image runs."""
    placed = (
        "--network",
        "host",
        *_limits(),
        "--volume",
        f"{data}:/data",
        *_MOUNTED,
        *options,
    )
    return ["run", "--rm", *placed, _IMAGE, *command]


def _limits() -> Iterator[str]:
    """This process's own: an engine within a container may set no others."""
    pids = int(Path("/proc/sys/kernel/pid_max").read_text())
    for name, limit in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        bounds = resource.getrlimit(limit)
        soft, hard = (pids if one == resource.RLIM_INFINITY else min(one, pids) for one in bounds)
        yield from ("--ulimit", f"{name}={soft}:{hard}")


def test_the_image_is_an_mcp_server_that_keeps_its_home_in_the_volume(
    image: Podman, data: Path
) -> None:
    async def overview() -> dict[str, Any]:
        server = StdioServerParameters(
            command="podman",
            args=words(data, options=("--interactive",)),
            env={**os.environ, **image.environment},
        )
        with anyio.fail_after(120):
            async with Client(server, mode="legacy") as client:
                return await answer_of(client, "overview")

    assert anyio.run(overview)["running"] == []
    assert (data / "trainmaster" / "control.db").stat().st_uid == _OWNER


def test_the_images_board_answers_who_has_its_token(image: Podman, data: Path) -> None:
    with started(image, data, "trainmaster", "board", "--port", "0") as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        token = address.fragment.removeprefix("token=")
        data_url = f"http://{address.netloc}/api/board"
        answer = httpx.get(data_url, headers={"Authorization": f"Bearer {token}"}, trust_env=False)
        assert answer.json()["runs"] == []
        assert httpx.get(data_url, trust_env=False).status_code == 403


def test_the_images_keeper_ticks_until_it_is_stopped(image: Podman, data: Path) -> None:
    with started(image, data, "trainmaster-keeper") as process:
        ticked = data / "trainmaster" / "keeper.json"
        wait_until(lambda: ticked.exists() or process.poll() is not None, "the first tick")
        image("kill", "--signal", "TERM", *image.containers())
        assert process.wait(120) == 0


@contextmanager
def started(image: Podman, data: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        ["podman", *words(data, *command)],
        env={**os.environ, **image.environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        image("rm", "--force", "--all", "--time", "0")
        process.wait(120)
