"""Out of memory: on a GPU, on the host, in /dev/shm."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.signatures.signature import Head, Strength, signature

_SIZE = r"\d[\d.]* ?(?:bytes|[KMGT]i?B)"

_RETRIED = (
    r"(?i)\b(?:retry\w*|trying (?:again|with|a|batch|\d)|skipp\w+|reduc\w+|halv\w+|"
    r"fall\w* back|fallback|continuing|"
    r"recovered|(?:was|were|been|is) caught|caught (?:and|an? )|ignor\w+|handled)\b"
)

CUDA_OOM = (
    signature(
        "cuda_oom/torch",
        "memory+out+cuda|memory+out+hip|memory+out+xpu|memory+out+mps|outofmemoryerror"
        "|memory+out+npu|memory+out+musa|memory+out+error+gpu",
        r"Out of memory error on GPU \d"
        r"|(?:CUDA|HIP|XPU|MPS backend|MUSA|NPU) out of memory(?=[.,:;!)]|\s*$|\s+\(| Tried| while"
        rf"| trying to)(?:. Tried to allocate (?P<asked>{_SIZE}))?"
        rf"(?:.{{0,80}}?(?:total capaci?ty of (?P<total_new>{_SIZE})"
        rf"|; (?P<total>{_SIZE}) total capacity))?"
        # In a container a process names itself by its pid, so the other one is named before it.
        rf"(?:.{{0,80}}? Process \d+ has (?P<held>{_SIZE}) memory in use"
        r"(?=.{0,400}this process has))?"
        rf"(?:.{{0,600}}?(?P<unallocated>{_SIZE}) is reserved by PyTorch but unallocated)?",
        unless=_RETRIED,
        retryable=True,
    ),
    signature(
        "cuda_oom/every_batch",
        "oom+memory+exception",
        r"OOM: Ran out of memory with exception",
        head=Head.WORDS,
        retryable=True,
        confidence=0.9,
    ),
    signature(
        "cuda_oom/exception",
        "outofmemoryerror",
        r"(?:^|[\s\]:(])(?:torch\.(?:cuda\.)?)?OutOfMemoryError(?=:|\s*$)",
        unless=_RETRIED + r"|[Rr]ay|node running low|host memory",
        retryable=True,
        confidence=0.9,
    ),
    signature(
        "cuda_oom/runtime",
        "memory+out+cuda|memory+out+hip|memory+allocation+cuda|cudaerrormemoryallocation"
        "|memory+file+line+out|memory+out+cudamalloc|memory+out+triton|memory+out+nccl|memory+out+device|metal+insufficient+memory",
        r"(?:(?:CUDA|HIP|cuda runtime|Triton|XPU|CUDA driver) [Ee]rror(?: \(?\d+\)?)?"
        r"(?: \[CUDA\])?:? ?:? out of memory"
        r"|(?:CUDA|HIP)_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
        r"|(?:Cuda|CUDA|HIP|Hip) failure (?:\d+ )?'out of memory'"
        r"|cudaMalloc\w* failed:? ?:?.{0,20}out of memory"
        r"|Error out of memory at line \d+ in file"
        r"|(?:parallel_for|thrust)\b.{0,80}out of memory"
        r"|out_of_memory: CUDA error|\[METAL\] Command buffer execution failed: Insufficient Memory"
        r"|Allocation on device\b.{0,60})",
        head=Head.WORDS,
        unless=_RETRIED,
        retryable=True,
    ),
    signature(
        "cuda_oom/nccl",
        "calloc+cuda+failed|malloc+cuda+failed|cudamalloc+failed",
        r"Failed to (?:CUDA|Cuda|HIP) (?:host )?(?:calloc|malloc)(?: async)? "
        r"(?P<asked_nccl>\d+(?: bytes)?)",
        head=Head.WORDS,
    ),
    signature(
        "cuda_oom/libraries",
        "cublas+alloc+failed|cudnn+alloc+failed|cusolver+alloc+failed|cusparse+alloc+failed"
        "|cufft+alloc+failed|cublas+allocation+resource|miopen+alloc",
        r"(?:(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
        r"|cublas runtime error : resource allocation failed|miopenStatusAllocFailed)",
        head=Head.WORDS,
        confidence=0.85,
        retryable=True,
    ),
    signature(
        "cuda_oom/xla",
        "exhausted+resource|oom+allocating",
        r"(?:RESOURCE_EXHAUSTED: .{0,80}(?:[Oo]ut of memory|OOM)|OOM when allocating tensor"
        r"|Resource exhausted: (?:OOM|Out of memory))",
        head=Head.WORDS,
        unless=_RETRIED,
        retryable=True,
    ),
    signature(
        "cuda_oom/kv_cache",
        "memory+cache+available+blocks",
        r"No available memory for the cache blocks",
        confidence=0.8,
    ),
)

HOST_OOM = (
    signature(
        "host_oom/kernel",
        "oom+killer+invoked|memory+killed+process|memory+kill+process|oom+kill+constraint"
        "|oom+reaper|killed+limit+task|memory+oom+kill",
        r"(?:[Mm]emory cgroup out of memory|[Oo]ut of memory(?: \(oom_kill_allocating_task\))?)"
        r": Kill(?:ed)? process \d+"
        r"|invoked oom-killer: |oom-kill:constraint=|oom_reaper: reaped process"
        r"|Task in \S+ killed as a result of limit of|^oom_kill [1-9]"
        r"|\bKilled process \d+ \([^)]{1,40}\),?(?: UID \d+,?)? (?:total-vm|vm)",
        head=Head.WORDS,
        confidence=0.98,
    ),
    signature(
        "host_oom/scheduler",
        "oom+kill+event|oom+kill+events|oom+kill+detected|oomkilled|memory+exceeded+limit"
        "|memory+out+srun"
        "|memory+notebook+allocate|session+crashed+ram|memlimit|memory+out+state|oom+kill+result|oom+killer+killed|mem+exceeded+limit"
        "|memory+killed+low|memory+exceeded+cgroup|oom+killed|systemd+oomd+killed",
        r"Detected \d+ oom[-_]kill event|OOMKilled|out of memory handler"
        r"|[Ee]xceeded (?:job|step)? ?memory limit|exceeded (?:virtual )?memory limit"
        r"|srun: error: \S+: tasks? [\d,-]+: Out Of Memory|\bOUT_OF_MEMORY\b(?!: )"
        r"|TERM_MEMLIMIT|Failed with result 'oom-kill'|killed by the OOM killer"
        r"|job killed: v?mem \d+\w* exceeded limit|due to the node running low on memory"
        r"|Killed \S+ due to memory (?:used|pressure)"
        r"|Your notebook tried to allocate more memory than is available"
        r"|Your session crashed after using all available RAM",
        head=Head.WORDS,
        unless=r"CUDA_ERROR|RESOURCE_EXHAUSTED",
        confidence=0.98,
    ),
    signature(
        "host_oom/allocation",
        "memory+allocate+cannot|memory+allocate+unable|memoryerror|alloc+bad+std"
        "|defaultcpuallocator|arraymemoryerror|arrowmemoryerror|memory+allocate+errno"
        "|alloc+cpu+allocator",
        r"(?:^|[\s\]:.])(?:MemoryError(?=:|\s*$)|_ArrayMemoryError|ArrowMemoryError: )"
        r"|\[Errno 12\] Cannot allocate memory|Cannot allocate memory \(os error 12\)"
        r"|(?:fork|mmap|malloc)\b.{0,40}: Cannot allocate memory|[Cc]annot allocate memory \(12\)"
        r"|DefaultCPUAllocator: (?:can't allocate memory|not enough memory)"
        r"(?:: you tried to allocate (?P<asked>\d+ bytes))?"
        r"|instance of 'std::bad_alloc'|what\(\):\s+std::bad_alloc"
        r"|(?<!CUDA): error: std::bad_alloc",
        head=Head.WORDS,
        unless=r"out_of_memory: CUDA",
    ),
    signature(
        "host_oom/worker_killed",
        "killed+dataloader+worker",
        r"DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) is killed by signal: "
        r"(?:Killed|Unknown signal: 9)",
        confidence=0.9,
    ),
    signature(
        "host_oom/sigkill",
        "sigkill|killed+signal|exitcode|return+code+exits|status+exit+zero|killed+line"
        "|killed+task+srun",
        r"failed \(exitcode: -9\) local_rank: (?P<local_rank>\d+)"
        r"|died with <Signals\.SIGKILL: 9>|terminated with signal SIGKILL"
        r"|exits with return code = -9\b|exited on signal 9 \(Killed\)"
        r"|returned non-zero exit status (?:-9|137)\b"
        r"|line \d+:\s+\d+ Killed\s|srun: error: \S+: tasks? [\d,-]+: Killed"
        r"|Process \d+ terminated by signal 9\b",
        head=Head.WORDS,
        confidence=0.7,
        strength=Strength.HINTED,
    ),
    signature(
        "host_oom/bare_killed",
        "killed",
        r"^(?:\[\d+\][+-]?\s+(?:\d+ )?)?Killed(?:\s{2,}\S.*|\s*)$",
        confidence=0.65,
        strength=Strength.HINTED,
    ),
    signature(
        "host_oom/child_sigkill",
        "sigkill+received+pid",
        r"Signal 9 \(SIGKILL\) received by PID \d+",
        head=Head.WORDS,
        confidence=0.5,
        strength=Strength.GUESSED,
    ),
    signature(
        "host_oom/pool",
        "abruptly+process|brokenprocesspool",
        r"A process in the process pool was terminated abruptly",
        confidence=0.6,
        strength=Strength.HINTED,
    ),
)

SHM_TOO_SMALL = (
    signature(
        "shm_too_small/worker",
        "bus+error+worker|bus+worker+killed|shm+insufficient|shared+memory+dataloader",
        r"Unexpected bus error encountered in worker|insufficient shared memory \(shm\)"
        r"|DataLoader worker \(pid\(?s?\)? ?[\d, ]+\) is killed by signal: Bus error"
        r"|dataloader's workers are out of shared memory",
        head=Head.WORDS,
    ),
    signature(
        "shm_too_small/segment",
        "shm+space+device|shm+memory+unable|torch+unable+file|shm+unable+write|torch+shared+open"
        "|shared+memory+segment|fallocate+space+failed|shm+bytes+available|shm+space+left",
        r"unable to (?:open|allocate|resize|mmap|write)\b.{0,60}(?:shared memory|</torch_\w+>)"
        r".{0,60}(?:No space left|Resource temporarily|Success|right size|too many|to file|$)"
        r"|unable to write to file </torch_\w+>"
        r"|No space left on device.{0,10}/dev/shm|/dev/shm\S*.{0,60}No space left on device"
        r"|[Ee]rror while (?:creating|attaching to) shared memory segment"
        r"|posix_fallocate failed : No space left"
        r"|No space left on device: '?/?psm_\w+",
        head=Head.WORDS,
        unless=r"Cannot allocate memory|Too many open files",
    ),
    signature(
        "shm_too_small/bus_error",
        "bus+error+core|bus+error+fatal|sigbus|exitcode|return+code+exits|bus+error+line|bus+error",
        r"Bus error\s+\(core dumped\)|Fatal Python error: Bus error|died with <Signals\.SIGBUS: 7>"
        r"|failed \(exitcode: -7\) local_rank: (?P<local_rank>\d+)"
        r"|exits with return code = -7\b|terminated with signal SIGBUS"
        r"|exited on signal 7 \(Bus error\)|^Bus error\s*$",
        head=Head.WORDS,
        confidence=0.7,
        strength=Strength.HINTED,
    ),
    signature(
        "shm_too_small/child_sigbus",
        "sigbus+received+pid",
        r"Signal 7 \(SIGBUS\) received by PID \d+",
        head=Head.WORDS,
        confidence=0.6,
        strength=Strength.GUESSED,
    ),
)

SIGNATURES = (*CUDA_OOM, *HOST_OOM, *SHM_TOO_SMALL)
