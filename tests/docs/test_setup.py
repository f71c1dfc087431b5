"""`make setup` and `make install` say what they install, ask before sudo, and start no service."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# In place of the machine's: a package's script asks the policy, as invoke-rc.d does, before it
# starts its service, and enables it in any case.
APT_GET = """\
#!/bin/sh
case "$*" in *install*) ;; *) exit 0 ;; esac
if [ -x /usr/sbin/policy-rc.d ] && ! /usr/sbin/policy-rc.d docker start; then
    echo denied >> "$STATE/started"
else
    echo started >> "$STATE/started"
fi
echo "docker.service enabled enabled" >> "$STATE/units"
echo "$*" >> "$STATE/installed"
exit "${FAILS:-0}"
"""
SYSTEMCTL = """\
#!/bin/sh
case "$1" in
list-unit-files) cat "$STATE/units" ;;
*) echo "$*" >> "$STATE/asked" ;;
esac
"""
# Who asks is an ordinary user, who may do all by sudo.
ORDINARY = {
    "id": "#!/bin/sh\necho 1000\n",
    "sudo": '#!/bin/sh\necho "$*" >> "$STATE/sudo"\nexec "$@"\n',
}
# In place of .venv's: notes what pip is asked for.
PYTHON = """\
#!/bin/sh
case "$1" in -m) echo "$*" >> "$STATE/pip" ;; esac
"""
# A machine that systemd has started, whose programs for services are those.
ENTER = """\
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && mount --bind "$1" /usr/sbin &&
shift && exec "$@"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout whose .venv is complete; beside it the machine's programs, and their notes."""
    if os.geteuid() != 0:
        pytest.skip("other programs for services take a mount namespace, and that takes root")
    made = tmp_path / "project"
    for folder in ("scripts", ".venv/bin", "../programs", "../sbin", "../state"):
        (made / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/setup.sh", made / "scripts")
    names = ("pyproject.toml", "constraints.txt", "requirements-dev.lock")
    for name in names:
        (made / name).write_text(name)
    (made / ".venv/bin/python").symlink_to(sys.executable)
    wanted = subprocess.run(
        ["cksum"], input="dev\n" + "".join(names), capture_output=True, text=True, check=True
    )
    (made / ".venv/.installed").write_text(wanted.stdout)
    plant(made, {"apt-get": APT_GET, "systemctl": SYSTEMCTL})
    (tmp_path / "state/units").write_text("cron.service enabled enabled\n")
    return made


def set_up(project: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    beside = project.parent
    return subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", ENTER, "sh", str(beside / "sbin")),
            *("scripts/setup.sh", "dev", "no-such-program=docker.io", "sh=dash"),
        ],
        cwd=project,
        env={
            **os.environ,
            "PATH": f"{beside / 'programs'}:/usr/bin:/bin",
            "STATE": str(beside / "state"),
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_service_of_a_package_is_started_now_or_at_the_next_boot(project: Path) -> None:
    done = set_up(project)
    assert done.returncode == 0, done.stderr
    state = project.parent / "state"
    assert (state / "installed").read_text().split()[-1] == "docker.io"
    assert (state / "started").read_text() == "denied\n"
    assert (state / "asked").read_text() == "--quiet disable docker.service\n"  # and not cron's
    assert "docker.service" in done.stderr
    assert not list((project.parent / "sbin").iterdir())


def test_a_failed_installation_leaves_no_policy_and_one_of_the_machine_stays(
    project: Path,
) -> None:
    assert set_up(project, FAILS="100").returncode == 100
    sbin = project.parent / "sbin"
    assert not list(sbin.iterdir())
    own = sbin / "policy-rc.d"
    own.write_text("#!/bin/sh\nexit 101\n")
    own.chmod(0o755)
    assert set_up(project).returncode == 0
    assert own.exists()


def test_sudo_is_used_only_where_it_was_agreed_to(project: Path) -> None:
    plant(project, ORDINARY)
    state = project.parent / "state"
    refused = set_up(project)
    assert refused.returncode == 1
    assert "These system packages are missing: docker.io" in refused.stderr
    assert "sudo apt-get install docker.io" in refused.stderr
    assert not (state / "sudo").exists() and not (state / "installed").exists()
    assert set_up(project, SUDO="yes").returncode == 0
    assert (state / "installed").read_text().split()[-1] == "docker.io"
    assert "apt-get install" in (state / "sudo").read_text()


def test_what_goes_into_the_environment_is_said_before_it_is_installed(project: Path) -> None:
    (project / ".venv/.installed").unlink()
    (project / ".venv/bin/python").unlink()
    plant(project, {"python": PYTHON, "pip": PYTHON}, project / ".venv/bin")
    done = set_up(project)
    assert done.returncode == 0, done.stderr
    said = next(line for line in done.stderr.splitlines() if "[dev]" in line)
    assert "PyTorch" in said and f"into {project}/.venv:" in said
    assert "torch" in (project.parent / "state/pip").read_text()
    assert "Installing" not in set_up(project).stderr.replace("Installing system packages", "")


def plant(project: Path, programs: dict[str, str], folder: Path | None = None) -> None:
    for name, text in programs.items():
        program = (folder or project.parent / "programs") / name
        program.write_text(text)
        program.chmod(0o755)
