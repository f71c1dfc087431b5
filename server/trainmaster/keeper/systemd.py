"""A timer of the user's own systemd."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from trainer_runtime.core.files.durable import write_atomic
from trainmaster.keeper.call import Call, marker_of, name_of
from trainmaster.keeper.scheduler import SchedulerName, call_program, scheduler_refused

_SYSTEMCTL = ("systemctl", "--user")
# Longer than any tick takes.
LONGEST_S = 1800
_PLAIN = re.compile(r"[A-Za-z0-9/._=@:+-]+")
_LINGERING = Path("/var/lib/systemd/linger")


class UserTimer:
    """A `Scheduler`; `environment` names the user's folders and finds `systemctl`."""

    name: SchedulerName = "systemd"

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment
        self._timer = f"{name_of(home)}.timer"
        own = Path(environment.get("HOME") or "~").expanduser() / ".config"
        configured = environment.get("XDG_CONFIG_HOME")
        folder = (Path(configured) if configured else own) / "systemd" / "user"
        self._service_path = folder / f"{name_of(home)}.service"
        self._timer_path = folder / self._timer

    def problem(self) -> str | None:
        result = call_program(self._environment, *_SYSTEMCTL, "show-environment")
        if result.code == 0:
            return None
        missing = "systemctl is not there"
        return missing if result.code is None else "the user's systemd does not answer"

    def entries(self) -> dict[str, str]:
        entries = {}
        for path in (self._service_path, self._timer_path):
            try:
                text = path.read_text()
            except OSError:
                continue
            if text.startswith(marker_of(self._home)):
                entries[str(path)] = text
        return entries

    def written(self, call: Call) -> dict[str, str]:
        return {str(self._service_path): service(call), str(self._timer_path): timer(call)}

    def install(self, call: Call) -> None:
        self._service_path.parent.mkdir(parents=True, exist_ok=True)
        for path, text in self.written(call).items():
            write_atomic(Path(path), text.encode())
        self._do("daemon-reload")
        self._do("enable", self._timer)
        self._do("restart", self._timer)  # an interval that was changed counts at once

    def remove(self) -> None:
        if not self.entries():
            return
        self._do("disable", "--now", self._timer)
        for path in self.entries():
            Path(path).unlink(missing_ok=True)
        self._do("daemon-reload")

    def hints(self) -> list[str]:
        user = self._environment.get("USER") or self._environment.get("LOGNAME") or ""
        if user and (_LINGERING / user).exists():
            return []
        return [
            "It is called only while you are logged in, until you run `loginctl enable-linger`."
        ]

    def _do(self, *words: str) -> None:
        result = call_program(self._environment, *_SYSTEMCTL, *words)
        if result.code != 0:
            raise scheduler_refused((*_SYSTEMCTL, *words), result)


def service(call: Call) -> str:
    """The unit that ticks once.

    KillMode: what a tick has started (supervisors, transfers) survives it.
    """
    variable = _quoted(f"TRAINMASTER_HOME={call.home}")
    command = " ".join(_quoted(word.replace("$", "$$")) for word in call.words)
    return f"""\
{marker_of(call.home)}
[Unit]
Description=Trainmaster: does what is due for runs and rented instances

[Service]
Type=oneshot
Environment={variable}
ExecStart={command}
KillMode=process
TimeoutStartSec={LONGEST_S}
"""


def timer(call: Call) -> str:
    """The unit that calls for it; what was missed while the machine slept is made up for once."""
    when = "*:0" if call.every_minutes == 60 else f"*:0/{call.every_minutes}"
    return f"""\
{marker_of(call.home)}
[Unit]
Description=Trainmaster: every {call.every}

[Timer]
OnCalendar={when}
Persistent=true

[Install]
WantedBy=timers.target
"""


def _quoted(word: str) -> str:
    """As systemd.syntax(7) reads it back, `%` being the start of a specifier."""
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
