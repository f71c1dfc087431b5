"""A real Docker daemon of its own, with an image that holds Debian's Python and nothing else."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.host.container_images import PYTHON, add_tree
from support.runs.running_run import wait_until

from trainer_runtime.host.processes.identity import identify

IMAGE = "python:own"


class DockerDaemon:
    """`environment` leads Docker's program to it. It may be killed and started again."""

    def __init__(self) -> None:
        # Sockets' paths are short.
        self.folder = Path(tempfile.mkdtemp(prefix="tm-docker-"))
        self.environment = {"DOCKER_HOST": f"unix://{self.folder}/docker.sock"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon, which leaves the machine's network alone; returns once it answers."""
        (self.folder / "pid").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    *("--bridge=none", "--iptables=false", "--ip6tables=false"),
                    *("--data-root", str(self.folder / "data")),
                    *("--exec-root", str(self.folder / "exec")),
                    *("--pidfile", str(self.folder / "pid")),
                    *("--host", self.environment["DOCKER_HOST"]),
                ],
                env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, f"Docker's daemon, which says {self.folder}/log")

    def kill(self) -> None:
        """Kill the daemon, as its machine's memory may do; its containers run on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            # It dies with its parent; as a zombie the next daemon would take it for a living one.
            containerd = self.folder / "exec/containerd/containerd.pid"
            pid = int(containerd.read_text())
            wait_until(lambda: identify(pid) is None, "the end of containerd")
            containerd.unlink()

    def stop(self) -> None:
        """End the daemon with all that it has started."""
        if self._answers():
            for container in self.containers():
                self("rm", "--force", container)
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for place in mounted:
            if place.startswith(f"{self.folder}/"):  # a killed daemon has left them
                subprocess.run(["umount", "--lazy", place], check=True)
        shutil.rmtree(self.folder)

    def __call__(self, *arguments: str, data: bytes = b"") -> str:
        """What a command prints; fails where it fails."""
        done = subprocess.run(
            ["docker", *arguments],
            env={**os.environ, **self.environment},
            input=data,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout.decode().strip()

    def containers(self) -> list[str]:
        """The names of all containers that there are, ended ones too."""
        return self("ps", "--all", "--format", "{{.Names}}").split()

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return False
        environment = {**os.environ, **self.environment}
        asked = ["docker", "version"]
        done = subprocess.run(asked, env=environment, capture_output=True, check=False)
        return done.returncode == 0


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerDaemon]:
    """A daemon with an image, which programs find by their environment."""
    daemon = DockerDaemon()
    try:
        daemon.start()
        daemon("import", "--change", "ENV PATH=/usr/bin", "-", IMAGE, data=_python())
        for name, value in daemon.environment.items():
            monkeypatch.setenv(name, value)
        yield daemon
    finally:
        daemon.stop()


def _python() -> bytes:
    """The interpreter, its library, and the shared objects that these load."""
    program = os.path.realpath(PYTHON)
    library = f"/usr/lib/{Path(program).name}"
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        add_tree(archive)
        for path in (program, PYTHON, library):
            archive.add(path, path.lstrip("/"), filter=_without_what_is_not_loaded)
        for path in sorted(_shared_objects(program, *Path(library, "lib-dynload").glob("*.so"))):
            data = Path(path).read_bytes()
            entry = tarfile.TarInfo(path.lstrip("/") if path.startswith("/usr/") else f"usr{path}")
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def _without_what_is_not_loaded(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    left_out = ("__pycache__", "test", "idlelib", "lib2to3", "pydoc_data", "ensurepip")
    return None if set(Path(entry.name).parts) & set(left_out) else entry


def _shared_objects(*programs: str | Path) -> set[str]:
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    words = (line.split() for line in listed.splitlines() if line.startswith("\t"))
    return {word for line in words for word in line if word.startswith("/")}
