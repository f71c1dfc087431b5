"""One module writes figures, and no other has a way of its own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from trainer_runtime.core.protocol.figures import (
    gib_text,
    in_utc,
    number_text,
    rounded,
    share_text,
    size_text,
    spoken_duration,
    usd_text,
)

_ROOT = Path(__file__).parents[3]
# Lines of logs, what only a host's log has, arguments of commands, file names, and a file that is
# sent alone.
_MAY = {
    "server/trainmaster/metrics/plots/sketch.py",  # of an axis: all in one form
    "trainer_runtime/host/processes/commands.py",
    "trainer_runtime/host/slurm/programs.py",
    "trainer_runtime/host/containers/engine.py",
    "trainer_runtime/host/slurm/folder_probe.py",
    "trainer_runtime/host/slurm/job_nodes.py",
    "trainer_runtime/host/alerts/post.py",
    "trainer_runtime/train/checkpoints/framework_checkpointer.py",
    "trainer_runtime/train/checkpoints/cadence.py",
    "trainer_runtime/host/attach/first_reading.py",
    "trainer_runtime/train/hf/universal.py",
    "trainer_runtime/core/inputs/utf8_text.py",
    "trainer_runtime/core/protocol/figures.py",
    "trainer_runtime/core/frameworks/litgpt.py",
    "trainer_runtime/core/files/shared_quota.py",
    "trainer_runtime/core/alerts/watcher.py",
    "trainer_runtime/train/loop/report.py",
    "trainer_runtime/train/checkpoints/due.py",
    "trainer_runtime/train/data/prepare_shards.py",
    "trainer_runtime/host/attach/attached_processes.py",
    "trainer_runtime/host/kaggle/kaggle_session.py",
    "trainer_runtime/host/prepare/byte_shards.py",
    "trainer_runtime/host/prepare/shards.py",
    "trainer_runtime/host/prepare/uploads.py",
    "trainer_runtime/host/answer/receive.py",
    "server/trainmaster/backends/debug/faults.py",
    "server/trainmaster/backends/debug/trainer.py",
    "server/trainmaster/backends/hosts/connection_check.py",
    "server/trainmaster/machines/check_host.py",
    "server/trainmaster/machines/host_options.py",
    "server/trainmaster/plan/decisions/corpus_checks.py",
    "server/trainmaster/plan/decisions/validation.py",
    "server/trainmaster/runs/inspect/inspect_run.py",
    "server/trainmaster/runs/log/log_search.py",
    "server/trainmaster/runs/monitor/monitor.py",
    "server/trainmaster/sync/keeper_state.py",
}
_OWN_WAY = re.compile(r"strftime\(|\.isoformat\(|:,?\.\d[fge%]\}|>> [23]0\}")


def test_figures_read_alike_everywhere() -> None:
    assert [spoken_duration(s) for s in (0, 0.352, 42, 200, 7500, 360_000)] == [
        "0 s", "0.35 s", "42 s", "3 min 20 s", "2 h 5 min", "4 d 4 h",
    ]  # fmt: skip
    assert [number_text(n) for n in (3.28712, 2e-5, 12345.6, 1000, float("nan"), "x")] == [
        "3.287", "2e-05", "12,346", "1,000", "NaN", "x",
    ]  # fmt: skip
    assert [size_text(n) for n in (0, 1434, 3 << 20, 409.6 * 2**20)] == [
        "0 B", "1.4 KiB", "3 MiB", "410 MiB",
    ]  # fmt: skip
    assert (gib_text(80), share_text(0.123), usd_text(1.2)) == ("80 GiB", "12 %", "$1.20")
    assert in_utc(1764311486) == "2025-11-28T06:31:26Z"
    assert (rounded(2 / 3), rounded(1764311486.1234)) == (0.666667, 1764311486.123)


def test_no_module_writes_figures_in_a_way_of_its_own() -> None:
    own = [
        f"{path.relative_to(_ROOT)}: {line.strip()}"
        for folder in ("server/trainmaster", "trainer_runtime")
        for path in sorted((_ROOT / folder).rglob("*.py"))
        if str(path.relative_to(_ROOT)) not in _MAY
        for line in path.read_text().splitlines()
        if _OWN_WAY.search(line) and not line.lstrip().startswith("#")
    ]
    assert own == []


def test_the_board_says_durations_as_all_else_does() -> None:
    durations_s = [0, 0.352, 42, 59.6, 200, 3600, 7500, 100_000, 360_000]
    script = "import('{0}').then((f) => console.log(JSON.stringify({1}.map(f.duration))))"
    module = (_ROOT / "server/trainmaster/board/page/format.js").as_uri()
    printed = subprocess.run(
        ["node", "--input-type=module", "-e", script.format(module, durations_s)],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert json.loads(printed) == [spoken_duration(seconds) for seconds in durations_s]
