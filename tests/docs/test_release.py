"""`make release`: reproducible, complete, and without a trace of the machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.engine]

ROOT = Path(__file__).parents[2]
_URL = "https://github.com/somebody/trainmaster"
_IDENTIFIERS = ("https://in-toto.io/", "https://slsa.dev/", "http://cyclonedx.org/")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A commit of the files as they are here, and of where they are published, long ago."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split("\0")
    names = [name for name in names if name and (ROOT / name).is_file()]
    listed = "\0".join(names).encode()
    tar = ["tar", "-C", str(ROOT), "--null", "-T", "-", "-cf", str(tmp_path / "files.tar")]
    subprocess.run(tar, check=True, input=listed)
    subprocess.run(["tar", "-xf", str(tmp_path / "files.tar"), "-C", str(folder)], check=True)
    name_repository(folder)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "commit.gpgsign=false"]
    dates = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(
            ["git", "-C", str(folder), *command], check=True, env={**os.environ, **dates}
        )
    return folder


def name_repository(folder: Path) -> None:
    """What only a publisher knows."""
    pyproject, readme = folder / "pyproject.toml", folder / "README.md"
    urls = f'[project.urls]\nRepository = "{_URL}"\n\n[project.scripts]'
    pyproject.write_text(pyproject.read_text().replace("[project.scripts]", urls))
    readme.write_text(f"{readme.read_text()}\n<!-- mcp-name: io.github.somebody/trainmaster -->\n")


def release(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    source = {"PYTHONPATH": f"{checkout}:{checkout / 'server'}"}
    return subprocess.run(
        [sys.executable, "scripts/release.py"],
        cwd=checkout,
        env={**os.environ, **source, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_release_names_what_it_is_made_of_and_carries_no_trace_of_the_machine(
    checkout: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    done = release(checkout, TRAINMASTER_SIGNING_KEY=str(key))
    assert done.returncode == 0, done.stderr
    dist = checkout / "dist"
    made = {path.name: path.read_bytes() for path in dist.iterdir()}
    statement = json.loads(made["provenance.intoto.json"])
    subjects = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert {name.rpartition(".")[2] for name in subjects} == {"whl", "gz", "json", "mcpb"}
    assert all(hashlib.sha256(made[name]).hexdigest() == subjects[name] for name in subjects)
    components = json.loads(made["sbom.cdx.json"])["components"]
    versions = {one["name"]: one["version"] for one in components}
    assert {"asyncssh", "pydantic", "transformers", "kaggle"} <= versions.keys()
    assert all(one["hashes"] for one in components)
    entry = json.loads(made["server.json"])
    (bundle,) = (name for name in made if name.endswith(".mcpb"))
    assert entry["packages"][1]["fileSha256"] == hashlib.sha256(made[bundle]).hexdigest()
    assert entry["repository"]["url"] == _URL
    for name in ("provenance.intoto.json", "sbom.cdx.json", "SHA256SUMS"):
        text = made[name].decode()
        assert str(tmp_path) not in text and str(Path.home()) not in text
        addresses = re.findall(r"https?://[^\"]+", text)
        assert [one for one in addresses if not one.startswith((*_IDENTIFIERS, _URL))] == []
    (tmp_path / "signers").write_text(f"release {(tmp_path / 'key.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(tmp_path / "signers"), "-I", "release"]
    verify += ["-n", "trainmaster-release", "-s", str(dist / "SHA256SUMS.sig")]
    subprocess.run(verify, check=True, input=made["SHA256SUMS"], stdout=subprocess.DEVNULL)
    (wheel,) = dist.glob("*.whl")
    assert {"overview", "launch"} <= tools_of(wheel, tmp_path / "installed")


def tools_of(wheel: Path, folder: Path) -> set[str]:
    """What the wheel's own server offers, as `uvx trainmaster mcp` would start it."""
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    client = {"name": "test", "version": "1"}
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    calls = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    served = subprocess.Popen(
        [sys.executable, "-m", "trainmaster", "--home", str(folder / "home"), "mcp"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert served.stdin is not None and served.stdout is not None
    limit = threading.Timer(120, served.kill)
    limit.start()
    try:
        # A client closes its end when it has its answers: at the end of its input a server
        # drops what it was asked.
        served.stdin.writelines(f"{json.dumps(call)}\n" for call in calls)
        served.stdin.flush()
        answers = (json.loads(line) for line in served.stdout)
        listed = next(answer["result"] for answer in answers if answer.get("id") == 2)
        served.stdin.close()
        assert served.wait(120) == 0
    finally:
        limit.cancel()
        served.kill()
        served.wait()
    assert (folder / "trainmaster" / "skills").is_dir()
    return {tool["name"] for tool in listed["tools"]}


def test_a_checkout_with_changes_is_not_released(checkout: Path) -> None:
    (checkout / "README.md").write_text("changed")
    done = release(checkout)
    assert done.returncode == 1
    assert "from a commit" in done.stderr
    assert not (checkout / "dist").exists()


def test_a_commit_that_names_no_repository_is_not_released(checkout: Path) -> None:
    readme = checkout / "README.md"
    readme.write_text(readme.read_text().replace("mcp-name:", ""))
    who = ["-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "commit.gpgsign=false"]
    commit = ["git", "-C", str(checkout), *who, "commit", "-qam", "other"]
    subprocess.run(commit, check=True)
    done = release(checkout)
    assert done.returncode == 1
    assert "mcp-name: io.github.somebody/trainmaster" in done.stderr
    assert not (checkout / "dist").exists()
