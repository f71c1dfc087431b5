"""Trainings ended from outside by signals, schedulers or people, and one harmless warning."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.signatures.signature import Head, Strength, signature

# A process that is asked to end may take a while to save.
_SETTLES_AFTER = 50
_HANDLERS = r"(?i)\bhandler|register|install|\btrap\b|setting signal|will (?:be )?handle"
_WORKER = r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) is killed by signal: "

SCHEDULER = (
    signature(
        "time_limit/scheduler",
        "limit+time+due|runlimit|walltime+exceeded|timed+job+caught|deadlineexceeded"
        "|limit+time+reached|deadline+active+longer|walltime+exceed|exceeded+maxruntime"
        "|runtime+limit+exceeded|minutes+exiting+program|time+execution+exceeded",
        r"CANCELLED AT \S+ DUE (?:TO|to) (?:TIME LIMIT|JOB TIME LIMIT|TIMEOUT)"
        r"|TERM_RUNLIMIT|job killed: walltime \d+ exceed(?:ed|s) limit"
        r"|Caught signal \w+ on \S+: this job is timed-?out"
        r"|Job was active longer than specified deadline|\bDeadlineExceeded\b(?!:)"
        r"|Time limit reached\. Elapsed time is"
        r"|exiting program after [\d.]+ minutes"
        r"|(?:wall-?time|[Rr]untime|[Tt]ime) limit (?:was )?exceeded"
        r"|MaxRuntimeExceeded|exceeded the maximum (?:execution|run) ?time",
        head=Head.WORDS,
        unless=r"NCCL|HTTP|grpc|_DeadlineExceeded",
        confidence=0.97,
        settles_after=_SETTLES_AFTER,
    ),
    signature(
        "node_lost/scheduler",
        "node+failure+due|node+failure+srun",
        r"CANCELLED AT \S+ DUE (?:TO|to) NODE FAILURE"
        r"|srun: error: Node failure on \S+",
        head=Head.WORDS,
        confidence=0.97,
        settles_after=_SETTLES_AFTER,
    ),
    signature(
        "preempted_sigterm/scheduler",
        "preemption+due|preempted+job|preempt|requeue+due|interruption+spot+instance|preempted"
        "|preempting|preemption+signal|termination+instance+notice|preemption",
        r"CANCELLED AT \S+ DUE (?:TO|to) (?:PREEMPTION|JOB REQUEUE)"
        r"|Caught signal \w+ on \S+: this job is preempted|TERM_PREEMPT"
        r"|(?i:(?:spot )?instance (?:interruption|preemption|termination) notice)"
        r"|(?i:(?:instance|node|VM|pod|job) (?:was|is being|has been) preempted)"
        r"|(?i:received (?:a )?preemption (?:signal|notice))",
        head=Head.WORDS,
        unless=_HANDLERS + r"|preempted by: *$|preemption mode|Sequence group",
        confidence=0.97,
        settles_after=_SETTLES_AFTER,
    ),
    signature(
        "job_cancelled/scheduler",
        "cancelled+by|job+deleted+request|job+deleted|owner+term|admin+term|qdel|scancel+signal"
        "|signal+cancelled+user|killed+owner",
        r"(?:^|\s)CANCELLED by (?:(?!0\b)\d{1,10}|[A-Za-z]\w{0,40})\b"
        r"|\b[Jj]ob deleted (?:at request of|by) \S+@\S+"
        r"|\bTERM_(?:OWNER|ADMIN)\b|\bdeleted by user \S+",
        head=Head.WORDS,
        confidence=0.85,
        settles_after=_SETTLES_AFTER,
    ),
    signature(
        "preempted_sigterm/cancelled",
        "cancelled+job+slurmstepd|cancelled+step+slurmstepd|cancelled+srun|cancelled+error",
        r"\*\*\* (?:JOB|STEP) [\d._+]+ ON \S+ CANCELLED AT \S+(?: DUE TO SIGNAL \w+)? \*\*\*",
        severity="info",
        head=Head.WORDS,
        confidence=0.8,
        settles_after=_SETTLES_AFTER,
    ),
)

SIGNALS = (
    signature(
        "preempted_sigterm/signal",
        "sigterm|signal+death|signal+got|terminated+dataloader|terminated+srun|signal+caught"
        "|signal+received|sigtermexception|termination+signal",
        r"Received (?:15|Signals\.SIGTERM) death signal"
        r"|SignalException: Process \d+ got signal: 15\b"
        r"|(?i:\b(?:received|caught|got|handling|trapped)(?: signal)? ?:?(?: a)? ?\[?sigterm\b)"
        r"|SIGTERM (?:was )?(?:received|caught)|SIGTERMException"
        r"|(?i:\b(?:received|caught|got) signal:? (?:15|number 15)\b)"
        r"|(?i:received (?:a )?termination signal)"
        r"|after receiving SIGTERM|srun: error: \S+: tasks? [\d,-]+: Terminated"
        rf"|{_WORKER}(?:Terminated|Unknown signal: 15)",
        head=Head.WORDS,
        unless=_HANDLERS + r"|Bypassing|closing signal|\bSend(?:ing)? |\bsent\b",
        confidence=0.9,
        settles_after=_SETTLES_AFTER,
    ),
    signature(
        "preempted_sigterm/exit",
        "sigterm|exitcode|return+code+exits|terminated+line|terminated|status+exit+zero",
        r"failed \(exitcode: -15\) local_rank: (?P<local_rank>\d+)|died with <Signals\.SIGTERM: 15>"
        r"|exits with return code = -15\b|exited on signal 15 \(Terminated\)"
        r"|line \d+:\s+\d+ Terminated\s|^Terminated\s*$|terminated with signal SIGTERM"
        r"|returned non-zero exit status (?:-15|143)\b",
        head=Head.WORDS,
        confidence=0.75,
        strength=Strength.HINTED,
        settles_after=_SETTLES_AFTER,
    ),
    signature(
        "session_hangup/signal",
        "signal+death|sighup|signal+got|hangup|exitcode|hangup+dataloader",
        r"Received (?:1|Signals\.SIGHUP) death signal|SignalException: Process \d+ got signal: 1\b"
        r"|(?i:\b(?:received|caught|got)(?: signal)?:? ?\[?sighup\b)|SIGHUP received"
        r"|Signal 1 \(SIGHUP\) received by PID \d+"
        r"|failed \(exitcode: -1\) local_rank: (?P<local_rank>\d+).{0,80}SIGHUP"
        r"|died with <Signals\.SIGHUP: 1>|line \d+:\s+\d+ Hangup\s|^Hangup\s*$"
        rf"|{_WORKER}Hangup",
        head=Head.WORDS,
        unless=_HANDLERS + r"|closing signal|this job is|ignor",
        settles_after=_SETTLES_AFTER,
    ),
    signature(
        "interrupted/signal",
        "keyboardinterrupt|signal+death|sigint|signal+got|keyboard+interrupt|interrupt+dataloader",
        r"(?:^|[\s\]:.])KeyboardInterrupt(?=:|\s*$)|Received (?:2|Signals\.SIGINT) death signal"
        r"|SignalException: Process \d+ got signal: 2\b"
        r"|(?i:\b(?:received|caught|got)(?: signal)?:? ?\[?sigint\b)|SIGINT received"
        r"|Detected KeyboardInterrupt|(?i:due to keyboard interrupt)|died with <Signals\.SIGINT: 2>"
        rf"|{_WORKER}Interrupt",
        head=Head.WORDS,
        unless=_HANDLERS + r"|closing signal|Press|press Ctrl|\bSend",
        confidence=0.9,
        settles_after=_SETTLES_AFTER,
    ),
)

BENIGN = (
    signature(
        "benign_tokenizers_fork/warning",
        "forked+tokenizers+process|forked+parallelism+process",
        r"huggingface/tokenizers: The current process just got forked",
        severity="info",
        confidence=1.0,
        cumulative=True,
    ),
)

SIGNATURES = (*SCHEDULER, *SIGNALS, *BENIGN)
