"""Where Trainmaster keeps things on the operator's side: the one place that builds these paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HOME_VARIABLE = "TRAINMASTER_HOME"


@dataclass(frozen=True, slots=True)
class Home:
    """The folder that holds everything; safe to copy as a whole while nothing runs."""

    root: Path

    @property
    def control_db(self) -> Path:
        return self.root / "control.db"

    @property
    def metrics_db(self) -> Path:
        return self.root / "metrics.db"

    @property
    def mirror(self) -> Path:
        return self.root / "mirror"

    @property
    def local_root(self) -> Path:
        """What `~/.trainmaster` is on other hosts."""
        return self.root / "local"

    @property
    def debug_root(self) -> Path:
        return self.root / "debug"

    def plot(self, name: str) -> Path:
        """The picture of this name that was drawn for an agent."""
        return self.root / "plots" / f"{name}.png"

    def follower_lock(self, host: str) -> Path:
        return self.root / "followers" / f"{host}.lock"

    def follower_pass(self, host: str) -> Path:
        """About the newest pass over a host's runs; see `follow.last_pass`."""
        return self.root / "followers" / f"{host}.pass"

    @property
    def secrets_env(self) -> Path:
        """Values of secrets by name, one `NAME=value` a line; readable by its owner alone."""
        return self.root / "secrets.env"

    @property
    def settings(self) -> Path:
        return self.root / "settings.yaml"

    def secrets(self, run_id: str) -> Path:
        """The values that a run was given, as long as it may need them; its owner's alone."""
        return self.root / "secrets" / f"{run_id}.json"

    def pins(self, host: str) -> Path:
        """The keys that a host is known by, in OpenSSH's known_hosts format."""
        return self.root / "hosts" / host / "known_hosts"

    def found(self, host: str) -> Path:
        """What was found out about a host and may be found out again."""
        return self.root / "hosts" / host / "found.json"

    def reached(self, host: str) -> Path:
        """Empty; its time is when the host last did what a command wanted of it."""
        return self.root / "hosts" / host / "reached"

    def checked(self, host: str) -> Path:
        """How a host was when it was last checked."""
        return self.root / "hosts" / host / "checked.json"

    def transfer_lock(self, run_id: str) -> Path:
        return self.root / "transfers" / f"{run_id}.lock"

    def transfer_progress(self, run_id: str) -> Path:
        return self.root / "transfers" / f"{run_id}.json"

    def advance_lock(self, run_id: str) -> Path:
        return self.root / "advancing" / f"{run_id}.lock"


def find_home(environment: Mapping[str, str]) -> Home:
    """The home that `TRAINMASTER_HOME` names, the platform's own where it is unset or empty."""
    named = environment.get(HOME_VARIABLE)
    root = Path(named).expanduser() if named else Path(platformdirs.user_data_dir("trainmaster"))
    return Home(root.absolute())
