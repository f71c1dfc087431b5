"""Failures between processes: collectives, peers, ports, data loaders."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.signatures.signature import Head, Strength, signature

_WORKER = r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) "

COLLECTIVES = (
    signature(
        "nccl_timeout/watchdog",
        "watchdog+timeout+collective|timeout+collective+operation|operations+timed+nccl"
        "|watchdog+stuck+progress|timeout+nccl+work|monitored+timed|monitoredbarrier"
        "|timed+gloo+waiting|timed+waiting+operation|communicator+aborted+nccl",
        r"(?:[Ww]atchdog )?[Cc]aught collective operation timeout: WorkNCCL"
        r"(?:\((?:SeqNum=\d+)?(?:[^)]{0,200}?Timeout\(ms\)=(?P<timeout_ms>\d+))?)?"
        r"|Some NCCL operations have failed or timed out"
        r"|watchdog got stuck for \d+ ?(?:seconds|ms)"
        r"|Timeout at NCCL work: \d+|NCCL communicator was aborted on rank \d+"
        r"|Ranks? [\d, ]+ failed to pass monitoredBarrier in \d+ ms"
        r"|timed out in monitoredBarrier after \d+"
        r"|gloo\S*\] Timed out waiting (?P<timeout_gloo>\d+)ms for"
        r"|Observed flight recorder dump signal from another rank",
        head=Head.WORDS,
    ),
    signature(
        "nccl_timeout/store",
        "timeout+socket+store|timeout+socket|wait+timeout+keys|timed+clients+joined"
        "|timed+client+socket|timed+barrier+store|rendezvoustimeouterror|timed+connect+store",
        r"(?:RuntimeError|DistStoreError|DistNetworkError|got error|error): (?:Socket Timeout"
        r"|wait timeout after \d+ms|Timed out after \d+ seconds waiting for clients)"
        r"|The client socket has timed out after \d+"
        r"|Timed out initializing process group in store based barrier"
        r"|RendezvousTimeoutError",
        head=Head.WORDS,
        confidence=0.65,
        strength=Strength.HINTED,
        unless=r"\[W\d|\bretry",
    ),
    signature(
        "nccl_peer_lost/closed",
        "closed+remote+peer|recv+call+failed|send+call+failed|read+call+failed|write+call+failed"
        "|ncclremoteerror|remote+exited+process|closed+peer+gloo|reset+peer+gloo"
        "|completion+peer+error|completion+peer+status|readlv+error+connection|closed+peer+connection+transport"
        "|remote+process+network|retry+exceeded+transport|retry+counter+exceeded",
        r"Connection closed by remote peer|socketPoll(?:Connect)?: .{0,60}(?:closed|reset)"
        r"|Call to (?:recv|send|read|write|connect)\w* (?:from|to) \S+ failed : "
        r"(?:Broken pipe|Connection reset by peer|Connection timed out|Connection closed)"
        r"|(?:Call to|socketProgress|[Nn]et :).{0,80}(?:Broken pipe|Connection reset by peer)"
        r"|ncclRemoteError|remote process exited or there was a network error"
        r"|gloo\S*\] (?:Connection closed by peer|Read error \[\S+\]: Connection reset by peer"
        r"|\w+ error .{0,40}(?:reset by peer|Broken pipe))"
        r"|[Gg]ot completion from peer \S+ with (?:error|status=?) ?1[02]\b"
        r"|transport retry counter exceeded",
        head=Head.WORDS,
    ),
    signature(
        "nccl_peer_lost/store",
        "reset+connection+store|reset+connection+peer|recvvalue|distnetworkerror|store+reset+peer|tcpstore+closed",
        r"(?:DistNetworkError|DistStoreError): (?:Connection reset by peer|Broken pipe"
        r"|(?:Connection was likely closed|failed to recv, got 0 bytes|Failed to recv))"
        r"|RuntimeError: Connection reset by peer"
        r"|store->get\('[^']{1,40}'\) got error: (?:Connection reset by peer|Broken pipe)",
        head=Head.WORDS,
        confidence=0.75,
        strength=Strength.HINTED,
    ),
    signature(
        "nccl_system_error/error",
        "unhandled+system+error|internal+nccl+error|ncclsystemerror|ncclinternalerror"
        "|unhandled+cuda+error|ncclunhandledcudaerror|interface+socket+bootstrap"
        "|connect+socketstartconnect|ncclinvalidusage|invalid+usage+nccl|duplicate+gpu+detected",
        r"(?:NCCL|RCCL) [Ee]rror\b.{0,240}(?:unhandled (?:system|cuda|hip) error|internal error"
        r"|invalid usage)|^\s*unhandled (?:system|cuda) error"
        r"|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|ncclInvalidUsage"
        r"|Bootstrap : no socket interface found"
        r"|socketStartConnect: Connect to \S+ failed"
        r"|Duplicate GPU detected : rank",
        head=Head.WORDS,
        confidence=0.85,
        strength=Strength.HINTED,
    ),
    signature(
        "rendezvous_port_in_use/bind",
        "address+already+use|eaddrinuse|port+already+use|port+another+utilizing|socket+failed+listen",
        r"(?:server socket has failed to (?:bind|listen)\b.{0,200}"
        r"|^|Error: |error: |\[Errno (?:98|48)\] |errno: ?(?:98|48)[ -]+|message: |failed: |: )"
        r"(?i:address already in use)|code: -98, name: EADDRINUSE"
        r"|server socket has failed to listen on any local network address"
        r"|Tried to launch distributed communication on port `?(?P<port>\d+)`?, but another"
        r"|\b[Pp]ort:? (?P<port_used>\d+) (?:is )?already in use",
        head=Head.WORDS,
        unless=r"(?i)tensorboard|gradio|jupyter|uvicorn|streamlit|https?://|dashboard|trying",
        retryable=True,
    ),
    signature(
        "ddp_unused_params/reduction",
        "reduction+finished+prior|receive+grad+parameters|receive+grad+parameter"
        "|unused+parameters+lightningmodule|used+lightningmodule+parameters",
        r"Expected to have finished reduction in the prior iteration"
        r"|Parameter(?: indices|s) which did not receive grad for rank (?P<rank>\d+)"
        r"|(?:It \w+ like your )?LightningModule has parameters that were not used in producing",
        head=Head.WORDS,
        unless=r"did not find any unused",
    ),
)

DATALOADER = (
    signature(
        "dataloader_crash/worker",
        "dataloader+worker+killed|dataloader+worker+exited|segmentation+worker+fault"
        "|unexpected+worker+encountered|dataloader+worker+caught|memory+pin+exited"
        "|dataloader+worker+process",
        _WORKER + r"is killed by signal: (?:Segmentation fault|Aborted|Floating point|Illegal|"
        r"Unknown signal: (?!9\b|15\b))"
        r"|" + _WORKER + r"exited unexpectedly"
        r"|Caught \w+ in DataLoader worker process \d+"
        r"|Unexpected (?:segmentation fault|floating-point exception) encountered in worker"
        r"|Pin memory thread exited unexpectedly",
        head=Head.WORDS,
        confidence=0.85,
        strength=Strength.HINTED,
    ),
    signature(
        "hang_data/timed_out",
        "dataloader+timed+seconds",
        r"DataLoader timed out after \d+(?:\.\d+)? seconds",
        confidence=0.8,
        severity="critical",
    ),
)

SIGNATURES = (*COLLECTIVES, *DATALOADER)
