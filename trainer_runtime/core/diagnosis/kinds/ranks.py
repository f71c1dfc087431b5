"""Processes of one training that don't find, or don't match, each other."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

KINDS = (
    Kind(
        "rendezvous_unreachable",
        "The ranks did not find each other: the address of the first one can't be reached.",
        (
            "Check MASTER_ADDR and MASTER_PORT, that the first rank runs, and the firewall between "
            "the machines.",
            "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name the interface that they share.",
        ),
        (
            Wording(
                r"\bThe client socket has timed out after \d+\s?ms while trying to connect"
                r"|\bThe client socket has failed to connect to"
                r"|\bRendezvousConnectionError\b|\bRendezvousTimeoutError\b"
                r"|\bTimed out after \d+ seconds waiting for clients|\bBarrier timed out\. Id: \w+"
                r"|\bThe IPv4 network addresses of \(.{1,200}\) cannot be retrieved",
                "torch.distributed.DistNetworkError: The client socket has timed out after "
                "600000ms while trying to connect to (10.0.0.1, 29500).",
                "PyTorch, torch/csrc/distributed/c10d/socket.cpp",
                unless=r"^\[?W\d*|(?i:warn)",
                confidence=0.85,
            ),
        ),
        confidence=0.85,
        instead_of=("nccl_timeout",),
        follows=("rendezvous_port_in_use", "nccl_peer_lost"),
    ),
    Kind(
        "collective_mismatch",
        "The ranks call different collectives, or with different shapes: they are out of sync.",
        (
            "Code that only some ranks run (evaluating or saving on rank 0, uneven batches) "
            "shifts the order: let all ranks call the same.",
            "Find the rank whose branch differs (data, evaluation, logging); "
            "TORCH_DISTRIBUTED_DEBUG=DETAIL names it.",
        ),
        (
            Wording(
                r"\bDetected mismatch between collectives on ranks"
                r"|\bCollectives differ in the following aspects",
                "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
                "collective: CollectiveFingerPrint",
                "PyTorch, torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp",
            ),
            Wording(
                r"\bWatchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d+, OpType=",
                "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
                "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600019 ms\n"
                "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, "
                "OpType=BROADCAST, NumelIn=2, NumelOut=2, Timeout(ms)=600000) ran for 600044 ms",
                "PyTorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
                after=r"timeout: WorkNCCL\(SeqNum=\d+, OpType=(\w+),[\s\S]{1,1500}?"
                r"timeout: WorkNCCL\(SeqNum=\d+, OpType=(?!\1,)",
                confidence=0.85,
            ),
            Wording(
                r"\bWatchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d+, OpType=",
                "[Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=90, "
                "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600019 ms\n[Rank 1] Watchdog "
                "caught collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, "
                "Timeout(ms)=600000) ran for 600044 ms",
                "PyTorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
                after=r"timeout: WorkNCCL\(SeqNum=(\d+),[\s\S]{1,1500}?"
                r"timeout: WorkNCCL\(SeqNum=(?!\1,)",
                confidence=0.7,
            ),
        ),
        instead_of=("nccl_timeout",),
    ),
    Kind(
        "params_differ_across_ranks",
        "The ranks have models of different shape or order of parameters.",
        ("Seed alike before the model is built, and build the same one on every rank.",),
        (
            Wording(
                r"\bappears not to match (?:sizes|strides) of the same param in process 0"
                r"|\bDDP expects same model across all ranks",
                "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 100 params",
                "PyTorch, torch/csrc/distributed/c10d/reducer.cpp",
            ),
        ),
    ),
    Kind(
        "nccl_p2p",
        "GPUs of this machine can't reach each other's memory directly.",
        ("Set NCCL_P2P_DISABLE=1 (and NCCL_IB_DISABLE=1 on these cards).",),
        (
            Wording(
                r"\bdoesn't support faster communication broadband via P2P or IB"
                r"|\bpeer access is not supported between these two devices",
                "NotImplementedError: Using RTX 4000 series doesn't support faster communication "
                'broadband via P2P or IB. Please set `NCCL_P2P_DISABLE="1"`',
                "accelerate, state.py",
                unless=r"(?i)warn",
            ),
        ),
    ),
    Kind(
        "default_group_missing",
        "A collective was called before the process group was made, or after it was destroyed.",
        ("Start the program by torchrun or accelerate, or call init_process_group first.",),
        (
            Wording(
                r"\bDefault process group has not been initialized"
                r"|\benvironment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK) "
                r"expected, but not set",
                "ValueError: Default process group has not been initialized, please make sure to "
                "call init_process_group.",
                "PyTorch, torch/distributed/distributed_c10d.py",
            ),
        ),
    ),
    Kind(
        "backend_missing",
        "The build of PyTorch lacks the backend that the ranks were to use.",
        ("Use gloo on CPUs, nccl with CUDA; or install a build that has it.",),
        (
            Wording(
                r"\bDistributed package doesn't have (?:NCCL|MPI|UCC|XCCL) built in"
                r"|\bUnknown c10d backend type",
                "RuntimeError: Distributed package doesn't have NCCL built in",
                "PyTorch, torch/distributed/distributed_c10d.py",
            ),
        ),
    ),
    Kind(
        "save_outlasts_barrier",
        "Ranks waited for one that was saving, longer than the timeout of the collective.",
        (
            "Raise the timeout of the process group (timeout, ddp_timeout), or save faster: "
            "sharded, asynchronously, to a local disk.",
        ),
        (
            Wording(
                r"\bTimed out waiting \d+ms for (?:recv|send) operation to complete",
                "Saving model checkpoint to out/checkpoint-100\n"
                "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
                "1800000ms for recv operation to complete",
                "gloo, gloo/transport/tcp/unbound_buffer.cc",
                after=r"(?i)\bsav(?:e|ing)",
                confidence=0.75,
            ),
        ),
        instead_of=("nccl_timeout", "nccl_peer_lost", "rendezvous_unreachable"),
    ),
    Kind(
        "local_rank_argument",
        "The launcher passes each process its rank as an argument (--local-rank, with a hyphen "
        "since PyTorch 2.0), which the program does not take.",
        (
            'Start it by torchrun and read os.environ["LOCAL_RANK"]; or take both spellings: '
            'add_argument("--local-rank", "--local_rank", type=int).',
        ),
        (
            Wording(
                r"\bunrecognized arguments: .{0,200}--local[-_]rank\b"
                r"|\b[Nn]o such option: --local[-_]rank\b",
                "a.py: error: unrecognized arguments: --local-rank=1",
                "PyTorch, torch/distributed/launch.py; argparse",
            ),
        ),
        instead_of=("arguments_refused",),
    ),
    Kind(
        "rdma_link",
        "An InfiniBand (RDMA, RoCE) connection gave up after its retries: a fault of the link "
        "(cable, port, switch), or the machine at the other end is gone.",
        (
            "Check port and link on both machines (`ibstat`, `ibdiagnet`, `rdma link`; the line "
            "names the adapter), and whether the peer still ran.",
            "Until it is repaired, leave the machine or the adapter out (NCCL_IB_HCA=^NAME).",
        ),
        (
            Wording(
                r"\b[Gg]ot completion from peer \S+ with (?:error |status=)(?:IBV_WC_RETRY_EXC_ERR"
                r"\(|IBV_WC_RNR_RETRY_EXC_ERR\()?1[23]\b"
                r"|\btransport retry counter exceeded|\bIBV_WC_(?:RNR_)?RETRY_EXC_ERR"
                r"|\bNET/IB ?: \S+ [Gg]ot async (?:fatal )?event: (?:port error|device fatal)",
                "NET/IB: Got completion from peer 10.0.0.1<4> with status=12 opcode=1 len=0 "
                "vendor err 129",
                "NCCL, src/transport/net_ib.cc",
            ),
        ),
        confidence=0.8,
        instead_of=("nccl_peer_lost", "nccl_system_error", "nccl_timeout"),
        ends=False,
        follows=("time_limit",),
    ),
    Kind(
        "rendezvous_closed",
        "The rendezvous was closed: the launcher of another node ended before this one.",
        ("Read the other nodes' logs: the first that ended says why.",),
        (
            Wording(
                r"\bRendezvousClosedError\b",
                "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
                "PyTorch, torch/distributed/elastic/rendezvous/dynamic_rendezvous.py",
                confidence=0.8,
            ),
        ),
        ends=False,
        follows=("time_limit", "preempted_sigterm", "nccl_peer_lost", "nccl_timeout"),
    ),
)
