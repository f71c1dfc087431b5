"""A real Podman with images of its own: small ones, into which this machine's Python is mounted.

An image is a tree of empty folders, and a search path: what trains, its engine mounts into every
container (`volumes` of containers.conf), as a real image would hold it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.runs.running_run import wait_until

_FOLDERS = ("usr", "proc", "sys", "dev", "tmp", "etc", "root", "run", "var")
_LINKS = {"lib": "usr/lib", "lib64": "usr/lib64", "bin": "usr/bin"}
_DEFAULTS = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
volumes = [{volumes}]
"""
_STORAGE = """\
[storage]
driver = "vfs"
graphroot = "{folder}/graph"
runroot = "{folder}/runroot"
"""
# Debian's own, which every container is given with /usr.
PYTHON = "/usr/bin/python3"
TORCH, BARE, EMPTY = "localhost/torch:1", "localhost/bare:1", "localhost/empty:1"
_PATHS = {TORCH: f"{sys.prefix}/bin:/usr/bin", BARE: "/usr/bin", EMPTY: "/nowhere"}


class Podman:
    """A Podman of its own. `environment`: the variables that lead to it; `planted`: a folder that
    its containers see, for what tests plant into a training."""

    def __init__(self, folder: Path, *owner: int) -> None:
        self.folder, self.planted, self._owner = folder, folder / "planted", owner
        self.planted.mkdir()
        # An ordinary user may not be let in where the rest of this Python lies.
        own = {str(self.planted)} if owner else {str(self.planted), sys.prefix, sys.base_prefix}
        seen = ["/usr", *sorted(path for path in own if not path.startswith("/usr/"))]
        volumes = ", ".join(json.dumps(f"{path}:{path}:ro") for path in seen)
        (folder / "containers.conf").write_text(_DEFAULTS.format(volumes=volumes))
        (folder / "storage.conf").write_text(_STORAGE.format(folder=folder))
        (folder / "user").mkdir(mode=0o700)
        self.environment = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "XDG_RUNTIME_DIR": str(folder / "user"),
        }
        if owner:
            self.environment["HOME"] = str(folder)
            for path in (folder, *folder.iterdir()):
                os.chown(path, *owner)

    def __call__(self, *arguments: str, data: bytes = b"") -> str:
        """What a command prints; fails where it fails."""
        done = subprocess.run(
            ["podman", *arguments],
            cwd=self.folder,  # an ordinary user may not be let in here
            env={**os.environ, **self.environment},
            input=data,
            capture_output=True,
            check=False,
            **({"user": self._owner[0], "group": self._owner[1]} if self._owner else {}),
        )
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout.decode().strip()

    def make(self, *names: str) -> None:
        """Make these images."""
        for name in names:
            path = f"ENV=PATH={_PATHS[name]}"
            self("import", "--quiet", "--change", path, "-", name, data=_tree())

    def end(self) -> None:
        """Remove the containers, and end the process that keeps an ordinary user's namespace."""
        self("rm", "--force", "--all", "--time", "0")
        for file in (self.folder / "user").rglob("pause.pid"):
            os.kill(int(file.read_text()), signal.SIGKILL)

    def containers(self) -> list[str]:
        """The names of all containers that there are, ended ones too."""
        return self("ps", "--all", "--format", "{{.Names}}").split()


def _tree() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        add_tree(archive)
    return made.getvalue()


def add_tree(archive: tarfile.TarFile) -> None:
    """The empty folders of an image, and the links of a merged /usr."""
    for name in _FOLDERS:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        archive.addfile(entry)
    for name, target in _LINKS.items():
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        archive.addfile(entry)


@pytest.fixture(scope="session")
def podman_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    made = Podman(tmp_path_factory.mktemp("podman"))
    made.make(TORCH, BARE, EMPTY)
    yield made
    made.end()


@pytest.fixture
def podman(podman_folder: Podman, monkeypatch: pytest.MonkeyPatch) -> Podman:
    """The session's Podman, which programs find by their environment."""
    for name, value in podman_folder.environment.items():
        monkeypatch.setenv(name, value)
    return podman_folder


@contextmanager
def docker_socket(podman: Podman) -> Iterator[str]:
    """Podman's service for Docker's program: the value of DOCKER_HOST."""
    socket = podman.folder / "docker.sock"
    address = f"unix://{socket}"
    service = subprocess.Popen(
        ["podman", "system", "service", "--time=0", address],
        env={**os.environ, **podman.environment},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(socket.exists, "the service's socket")
        yield address
    finally:
        service.terminate()
        service.wait()


@contextmanager
def registry(podman: Podman, name: str) -> Iterator[tuple[str, str]]:
    """A registry on loopback with an image under `name` that is nowhere else: its address and the
    image's digest."""
    saved, image = podman.folder / f"saved-{name}", f"localhost/only-{name}"
    podman("import", "--quiet", "-", image, data=_tree())
    podman("save", "--quiet", "--format", "docker-dir", "--output", str(saved), image)
    podman("rmi", image)
    manifest = (saved / "manifest.json").read_bytes()
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    answers = {f"/v2/{name}/manifests/{tag}": manifest for tag in ("1", digest)}
    for blob in saved.iterdir():
        answers[f"/v2/{name}/blobs/sha256:{blob.name}"] = blob.read_bytes()
    with _serving({"/v2/": b"{}", **answers}) as address:
        listed = podman.folder / "registries.conf"
        listed.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        yield address, digest


@contextmanager
def _serving(answers: Mapping[str, bytes]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        # What speaks TLS is answered by HTTP, which Docker's program takes as a hint to do so, too.
        default_request_version = "HTTP/1.0"

        def do_GET(self) -> None:
            body = answers.get(self.path)
            missing = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'
            self.send_response(404 if body is None else 200)
            kind = "application/vnd.docker.distribution.manifest.v2+json"
            self.send_header("Content-Type", kind if "/manifests/" in self.path else "text/plain")
            self.send_header("Content-Length", str(len(missing if body is None else body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(missing if body is None else body)

        do_HEAD = do_GET  # noqa: N815 - as http.server names it

        def log_message(self, format: str, *arguments: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
