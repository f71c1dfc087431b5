"""A scan of a log that continues from what an earlier one knew."""

from __future__ import annotations

import json
import random
from pathlib import Path

from support.core.journal_records import metric, started
from support.host.scripted_processes import Box, Life

from trainer_runtime.core.diagnosis.signatures import ScanResult, find
from trainer_runtime.core.protocol.masking import Mask
from trainer_runtime.host.supervise.history import open_history
from trainer_runtime.host.watch.log_scan import MaskedScan

SECRET = "hf_abcdefghijklmnop"
STEPS = b"".join(b"step %d: train loss %.4f\n" % (step, 3 - step / 100) for step in range(40))
OVERFLOW = b"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536\n"
OUT_OF_MEMORY = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
    b" capacity of 79.15 GiB of which 1.25 GiB is free, token=%s\n" % SECRET.encode()
)
NO_SPACE = b"OSError: [Errno 28] No space left on device: 'checkpoints/step-00000100'\n"
LOG = b"".join(
    (
        STEPS,
        OVERFLOW * 3,
        STEPS,
        b"x" * 40_000 + SECRET.encode() * 3 + b"\n",
        b"RuntimeError: NCCL communicator was aborted on rank 3.\n" + STEPS,
        OUT_OF_MEMORY + b"retrying with a smaller batch\n",
        STEPS + OVERFLOW + OUT_OF_MEMORY,
        b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n",
        b"Root Cause (first observed failure):\n  rank      : 1 (local_rank: 1)\n",
        b"  exitcode  : -9 (pid: 77)\n" + SECRET.encode(),
    )
)


def scanned(cuts: list[int]) -> ScanResult:
    """The result where a new process continues at each of the cuts."""
    mask = Mask([SECRET])
    scan, begin = MaskedScan(mask), 0
    for end in (*cuts, len(LOG)):
        scan.feed(LOG[begin:end])
        memory = json.loads(json.dumps(scan.to_dict()))
        scan = MaskedScan.from_dict(mask, memory)
        begin = scan.begin
    scan.feed(LOG[begin:])
    return scan.result(ended=True)


def test_a_scan_continues_wherever_the_one_before_it_ended() -> None:
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    source = random.Random(seed)
    unbroken = MaskedScan(Mask([SECRET]))
    unbroken.feed(LOG)
    whole = unbroken.result(ended=True)
    assert {one.code for one in find(whole)} >= {"cuda_oom"}
    assert SECRET.encode() not in whole.tail
    for _ in range(20):
        cuts = sorted(source.sample(range(len(LOG)), 3))
        assert scanned(cuts) == whole


def test_a_supervisor_scans_the_log_from_where_the_one_before_it_was(tmp_path: Path) -> None:
    life = Life((started(), metric(1)), end=None, log=STEPS.decode())
    box = Box(tmp_path / "small-abc234", {1: life}, snapshot_every=1)
    box.set_up()
    supervisor = box.supervisor()
    box.tick(supervisor, "attempt_running")
    box.emit(1, metric(2))
    for _ in range(3):
        supervisor.tick()
    supervisor.close()
    log = box.run.attempt(1).train_log
    log.write_bytes(OUT_OF_MEMORY.ljust(len(STEPS), b"#")[:-1] + b"\n" + NO_SPACE)
    history = open_history(box.run, lambda: 2_000.0)
    history.recall(lambda: None)
    history.watch.poll(2_000.0)
    history.close()
    assert {one.code for one in history.watch.findings} == {"disk_full"}
