from __future__ import annotations

import time

import pytest

from trainer_runtime.core.diagnosis.signatures import Outcome, SignatureScan, find
from trainer_runtime.host.watch.watcher import concerning, kernel_lines

KILLED = b"Out of memory: Killed process 4242 (python) total-vm:80000kB, anon-rss:70000kB"
IN_GROUP = b"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=4242,uid=0"
INVOKED = b"python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"
MMU = b"NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python, Ch 00000010, intr 00000000"
ECC = b"NVRM: Xid (PCI:0000:3b:00): 48, pid=17, name=other, DBE (Double Bit Error)"
LOST = (
    b"NVRM: Xid (PCI:0000:03:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)


@pytest.mark.parametrize(
    ("line", "ours", "counts"),
    [
        (KILLED, 4242, True),
        (KILLED, 17, False),
        (IN_GROUP, 4242, True),
        (IN_GROUP, 17, False),
        (INVOKED, 4242, False),
        (MMU, 4242, True),
        (MMU, 17, False),
        (ECC, 4242, True),
        (LOST, 4242, True),
        (b"usb 1-1: new device, pid=4242", 4242, False),
    ],
)
def test_only_what_befell_our_processes_or_the_cards_counts(
    line: bytes, ours: int, counts: bool
) -> None:
    assert concerning([(10.0, line)], 5.0, [ours]) == ((line,) if counts else ())


def test_what_was_said_before_the_attempt_is_left_out_and_the_rest_is_bounded() -> None:
    assert concerning([(1.0, KILLED)], 5.0, [4242]) == ()
    assert len(concerning([(9.0, LOST)] * 1000, 5.0, [])) == 64


@pytest.mark.parametrize(
    ("line", "code"), [(KILLED, "host_oom"), (MMU, "gpu_mmu_fault"), (LOST, "gpu_fell_off_bus")]
)
def test_the_kernels_word_names_the_cause(line: bytes, code: str) -> None:
    outcome = Outcome(signal=9, dmesg=concerning([(9.0, line)], 5.0, [4242]))
    (found,) = find(SignatureScan().result(), outcome)
    assert found.code == code


def test_a_kernel_without_readable_messages_is_not_a_failure() -> None:
    now = time.time()
    assert all(isinstance(line, bytes) for line in kernel_lines(now - 60, now, [1]))
