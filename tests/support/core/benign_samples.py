"""Text that resembles a failure, and logs in which one failure caused others."""

from __future__ import annotations

_STEPS = "".join(
    f"step {step} | loss {3.2 - step / 1000:.4f} | lr 3.0e-04 | 101 ms\n" for step in range(1, 41)
)

# name -> text; nothing may be found in it.
# Those that end with an error which has no code.
WITH_ERROR = frozenset({"inotify"})
BENIGN: dict[str, str] = {
    "source code in the log": _STEPS
    + 'try:\n    loss.backward()\nexcept RuntimeError as error:\n    if "CUDA out of memory" in '
    'str(error):\n        print("CUDA out of memory. Tried to allocate more")\n    raise\n'
    'raise RuntimeError("CUDA out of memory. Tried to allocate")\n',
    "preempted, requeued, resumed": _STEPS
    + "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-05-01T10:11:12 DUE TO PREEMPTION ***\n"
    "Resuming training from out/step-40\n" + _STEPS,
    "source with signal handlers": "import signal\n# SIGTERM received: save and exit\n"
    "signal.signal(signal.SIGTERM, handler)\nexcept KeyboardInterrupt:\n    "
    "print('KeyboardInterrupt')"
    "\nassert not math.isnan(loss), 'loss is nan'\nif loss != loss: raise ValueError('loss nan')\n",
    "the name of an exception caught": "except torch.cuda.OutOfMemoryError:\nexcept MemoryError:\n"
    "from torch.cuda import OutOfMemoryError\n",
    "sample text about an error": _STEPS
    + "sample: The GPU said CUDA out of memory and the user restarted the machine.\n"
    "I get RuntimeError: CUDA out of memory. What can I do?\n",
    "training data as JSON": '{"text": "RuntimeError: CUDA out of memory. Tried to allocate 2.00 '
    'GiB", "label": 1}\n{"prompt": "How do I fix No space left on device?", "completion": "df '
    '-h"}\n'
    '{"messages": [{"role": "user", "content": "OSError: [Errno 28] No space left on device"}]}\n',
    "training data as a dict": "{'prompt': 'loss: nan, what now', 'completion': 'lower the lr'}\n",
    "packages that are done without": "[WARNING] No package metadata was found for wandb\n"
    "UserWarning: Target modules {'lm_head'} not found in the base model, skipping them\n"
    "try:\n    import deepspeed\nexcept ModuleNotFoundError:\n    pass\n",
    "rows about columns": '{"prompt": "KeyError: \'chosen\'", "completion": "add the column"}\n',
    "a question in a chat log": "Question: why do I see 'Connection closed by remote peer'?\n"
    "Q: KeyboardInterrupt\nuser: Killed\nassistant: RuntimeError: CUDA error: out of memory\n",
    "generated sentences": "Generated: the train has fallen off the bus and nobody noticed\n"
    "When the disk is full, No space left on device errors happen.\n",
    "an exhausted GPU that was caught": _STEPS
    + "WARNING: CUDA out of memory. Tried to allocate 2.00 GiB; retrying with micro batch 4\n"
    + _STEPS,
    "caught on the next line": "step 10 | loss 3.1 | 100 ms\n"
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    "Retrying with batch size 8\nstep 11 | loss 3.0 | 100 ms\nstep 12 | loss 2.9 | 100 ms\n",
    "skipped batch": "| WARNING: ran out of memory with exception: CUDA out of memory. Tried to "
    "allocate 1.00 GiB; skipping batch\n" + _STEPS,
    "an error that training outlived": _STEPS
    + "RuntimeError: CUDA error: out of memory\n"
    + _STEPS,
    "overflows at the start": "".join(
        f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2**power}, reducing "
        f"to {2 ** (power - 1)}\n"
        for power in range(16, 12, -1)
    )
    + _STEPS,
    "apex at the start": "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to "
    "32768.0\nGradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 16384.0\n"
    + _STEPS,
    "Megatron's zero nan iterations": " iteration       10/  500 | lm loss: 9.1E+00 | loss scale: "
    "8388608.0 | number of skipped iterations:   9 | number of nan iterations:   0 |\n" * 9,
    "one skipped step in fp16": "{'loss': 2.1, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': "
    "0.0}"
    "\n" + "{'loss': 2.0, 'grad_norm': 1.1, 'learning_rate': 1e-05, 'epoch': 0.1}\n" * 9,
    "NCCL's own notes": "n1:5:9 [0] NCCL INFO misc/socket.cc:749 -> 6\n"
    "n1:5:9 [0] NCCL INFO Call to connect returned Connection refused, retrying\n"
    "n1:5:9 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Abort COMPLETE\nNCCL_TIMEOUT=1800\n",
    "process group not destroyed": "[rank0]:[W1120 20:29:47.209 ProcessGroupNCCL.cpp:1538] "
    "Warning: "
    "WARNING: destroy_process_group() was not called before program exit, which can leak resources."
    " For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown "
    "(function "
    "operator())\n",
    "IPv6 that is missing": "[W socket.cpp:426] [c10d] The server socket cannot be initialized on "
    "[::]:29500 (errno: 97 - Address family not supported by protocol).\n"
    "[W socket.cpp:601] [c10d] The client socket has failed to connect to [localhost]:29500 "
    "(errno: "
    "111 - Connection refused).\n",
    "unexpected keys": "Some weights of the model checkpoint at bert were not used when "
    "initializing BertModel: ['cls.x']\nWARNING: unexpected keys in state_dict: ['a.b']\n",
    "heads of another shape, on purpose": "Some weights of Bert were not initialized from the "
    "model "
    "checkpoint at b and are newly initialized because the shapes did not match:\n- "
    "classifier.weight: found shape torch.Size([2, 768]) in the checkpoint and torch.Size([3, "
    "768]) "
    "in the model instantiated\n",
    "a hub request that is retried": "'(ReadTimeoutError(\"HTTPSConnectionPool(host="
    "'huggingface.co', port=443): Read timed out. (read timeout=10)\"), '(Request ID: x)')' thrown "
    "while requesting HEAD https://huggingface.co/gpt2/resolve/main/config.json\nRetrying in 1s "
    "[Retry 1/5].\n",
    "urllib3 retries": "WARNING:urllib3.connectionpool:Retrying (Retry(total=4, connect=None)) "
    "after "
    "connection broken by 'NewConnectionError(<HTTPSConnection(host='huggingface.co')>: Failed to "
    "establish a new connection')': /api/models\n",
    "no parameter unused": "[W reducer.cpp:1346] Warning: find_unused_parameters=True was "
    "specified "
    "in DDP constructor, but did not find any unused parameters in the forward pass.\n",
    "shared memory of the container": "NOTE: The SHMEM allocation limit is set to the default of "
    "64MB.  This may be\n   insufficient for PyTorch.  NVIDIA recommends the use of the following "
    "flags:\n   docker run --gpus all --ipc=host --ulimit memlock=-1\n",
    "bitsandbytes says hello": "===================================BUG REPORT==================\n"
    "Welcome to bitsandbytes. For bug reports, please run\n\npython -m bitsandbytes\n\n"
    "CUDA SETUP: CUDA runtime path found: /usr/local/cuda/lib64/libcudart.so.11.0\n"
    "CUDA SETUP: Loading binary /x/libbitsandbytes_cuda118.so...\n",
    "xformers without Triton": "A matching Triton is not available, some optimizations will not be "
    "enabled.\nError caught was: No module named 'triton'\n",
    "DeepSpeed's optional ops": " [WARNING]  async_io requires the dev libaio .so object and "
    "headers "
    "but these were not found.\n [WARNING]  please install triton==1.0.0 if you want to use sparse "
    "attention\n[WARNING] CUDA_HOME does not exist, unable to compile CUDA op(s)\n",
    "handlers being set": "SLURM auto-requeueing enabled. Setting signal handlers.\n"
    "Registered SIGTERM handler\nInstalling handler for SIGINT and SIGTERM\n"
    "[transformers] Restored original SIGTERM handler after training completion\n",
    "torchrun ends the others": "W1 torch/distributed/elastic/multiprocessing/api.py:900] Sending "
    "process 12 closing signal SIGTERM\n",
    "the shell's trace": "+ echo 'CUDA out of memory'\n++ trap 'echo Terminated' SIGTERM\n"
    "+ grep -c 'No space left on device' train.log\n",
    "TensorBoard's port": "TensorBoard could not bind to port 6006, it was already in use\n"
    "ERROR: Address already in use: http://localhost:6006 (trying 6007)\n",
    "names with nan in them": "nanochat: base train\nnanoGPT loss 3.1\nnan_count "
    "0\nloss_nan_guard=on\n"
    "torch.nan_to_num enabled\ncheck_for_nan_in_loss_and_grad ......... True\n",
    "arguments that are printed": "  check_for_nan_in_loss_and_grad .............. True\n"
    "  exit_signal_handler ......................... False\n  exit_duration_in_mins ... None\n"
    "  timeout: 1800\n  max_memory: out\n",
    "a worker's harmless exit": "Finishing remaining requests... wandb: Synced 5 W&B file(s)\n"
    "Exit code 0\nexitcode: 0\n",
    "API quota": "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'\n",
    "inotify": "OSError: [Errno 28] inotify watch limit reached\nNo space left on device: "
    "inotify\n",
    "memory in the metrics": "step 5 loss 2.1 memory 39.1GiB out of 80GiB cuda\n" * 8,
    "a compiler that is older": "UserWarning: \n\n                               !! WARNING !!\n\n"
    "Your compiler (c++) is not compatible with the compiler Pytorch was\nbuilt with for this "
    "platform, which is g++ on linux.\n",
    "an HF token that is missing": "UserWarning: The secret `HF_TOKEN` does not exist in your "
    "Colab "
    "secrets. To authenticate with the Hugging Face Hub, create a token in your settings tab\n",
    "speculation in a docstring": '    """Raises OutOfMemoryError: if the GPU is full.\n\n    # '
    'KeyboardInterrupt\n    """\n',
}

_ROOT_CAUSE = """\
E1130 10:00:09.381000 7611 torch/distributed/elastic/multiprocessing/api.py:869] failed \
(exitcode: {code}) local_rank: {rank} (pid: 7615) of binary: /usr/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 7616)  (SIGTERM)
  traceback : Signal 15 (SIGTERM) received by PID 7616
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_20:29:47
  host      : n1
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 7615)
  error_file: <N/A>
  traceback : {output}
============================================================
"""
_NO_TRACEBACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
_WATCHDOG = (
    "[rank0]:[E1130 10:00:00.111 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=21, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600026 "
    "milliseconds before timing out.\n"
    "[rank0]:[E1130 10:00:00.112 ProcessGroupNCCL.cpp:630] To avoid data inconsistency, we are "
    "taking the entire process down.\n"
)
_CLOSING = (
    "W1130 10:00:02.388000 1 torch/distributed/elastic/multiprocessing/api.py:900] Sending process "
    "12 closing signal SIGTERM\n"
)
_OOM = (
    '[rank3]: Traceback (most recent call last):\n[rank3]:   File "train.py", line 9, in <module>\n'
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a "
    "total capacity of 79.10 GiB of which 1.12 GiB is free.\n"
)

# name -> (text, the code that comes first); nothing else of severity critical may be found.
FIRST_CAUSE: dict[str, tuple[str, str]] = {
    "out of memory, then the watchdog": (
        _STEPS
        + _OOM
        + _WATCHDOG
        + _CLOSING
        + _ROOT_CAUSE.format(code=1, rank=3, output=_NO_TRACEBACK),
        "cuda_oom",
    ),
    "the watchdog is printed first": (
        _STEPS
        + _WATCHDOG
        + _OOM
        + _CLOSING
        + _ROOT_CAUSE.format(code=1, rank=3, output=_NO_TRACEBACK),
        "cuda_oom",
    ),
    "a child killed, nothing said": (
        _STEPS
        + _CLOSING
        + _ROOT_CAUSE.format(code=-9, rank=2, output="Signal 9 (SIGKILL) received by PID 7615"),
        "host_oom",
    ),
    "a child killed, and the peers notice": (
        _STEPS
        + "n1:5:9 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer "
        "n2<5>\n"
        + _WATCHDOG
        + _ROOT_CAUSE.format(code=-9, rank=2, output="Signal 9 (SIGKILL) received by PID 7615"),
        "host_oom",
    ),
    "a worker killed, the parent complains": (
        _STEPS
        + "RuntimeError: DataLoader worker (pid 44) is killed by signal: Killed.\n\nThe above "
        "exception was the direct cause of the following exception:\n\nRuntimeError: DataLoader "
        "worker (pid(s) 44) exited unexpectedly\n",
        "host_oom",
    ),
    "an error in a worker": (
        "OSError: Caught OSError in DataLoader worker process 0.\nOriginal Traceback (most recent "
        'call last):\n  File "w.py", line 3, in f\nOSError: [Errno 28] No space left on device\n',
        "disk_full",
    ),
    "SIGTERM, then the workers": (
        _STEPS
        + "W1130 12:13:49.388000 1 torch/distributed/elastic/agent/server/api.py:723] Received 15 "
        "death signal, shutting down workers\n"
        + _CLOSING
        + "RuntimeError: DataLoader worker (pid 77) is killed by signal: Terminated. \n"
        "n1:5:9 [0] NCCL WARN Net : Call to recv from 10.2.84.7<58301> failed : Broken pipe\n"
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15\n",
        "preempted_sigterm",
    ),
    "a hang, then cancelled": (
        _STEPS + "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)\n"
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-05-01T10:11:12 ***\n"
        "7             CANCELLED by 1007    00:11:20\n",
        "nccl_timeout",
    ),
    "the time limit, reported last": (
        _STEPS
        + "[rank: 0] Received SIGTERM: 15\n"
        + "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-05-01T10:11:12 DUE TO TIME LIMIT "
        "***"
        "\nsrun: error: n1: task 0: Terminated\n",
        "time_limit",
    ),
    "the OOM killer, reported last": (
        _STEPS
        + "n1:5:9 [0] NCCL WARN Net : Connection closed by remote peer n2<5>\n"
        + "srun: error: n2: task 1: Killed\n"
        + "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0. Some of your processes "
        "may "
        "have been killed by the cgroup out-of-memory handler.\n",
        "host_oom",
    ),
    "an assertion, then CUDA errors": (
        "x/Indexing.cu:1284: indexSelectLargeIndex: block: [131,0,0], thread: [0,0,0] Assertion "
        "`srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: device-side assert "
        "triggered\nterminate called after throwing an instance of 'c10::Error'\n" + _WATCHDOG,
        "index_out_of_range",
    ),
    "a broken card": (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
        "RuntimeError: CUDA error: an illegal memory access was encountered\n" + _WATCHDOG,
        "gpu_hw_ecc",
    ),
    "an illegal access, and its Xid": (
        "[7.7] NVRM: Xid (PCI:0000:3b:00): 31, pid=991, name=python, MMU Fault: ENGINE GRAPHICS\n"
        "RuntimeError: CUDA error: an illegal memory access was encountered\n",
        "cuda_illegal_memory",
    ),
    "the terminal closed": (
        _STEPS
        + "WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting "
        "down workers\nWARNING:torch.distributed.elastic.multiprocessing.api:Sending process 12 "
        "closing signal SIGHUP\ntorch.distributed.elastic.multiprocessing.api.SignalException: "
        "Process 1 got signal: 1\n",
        "session_hangup",
    ),
    "a lost peer, reported with an internal error": (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/x.cpp:1275, internal "
        "error,"
        " NCCL version 2.14.3\nncclInternalError: Internal check failed.\nLast error:\nNet : "
        "Connection closed by remote peer w<1>\n",
        "nccl_peer_lost",
    ),
    "the quota, then the writer": (
        "OSError: [Errno 122] Disk quota exceeded\nRuntimeError: [enforce fail at "
        "inline_container.cc:424] . unexpected pos 320 vs 214\n",
        "disk_quota",
    ),
    "NCCL's own allocation": (
        "n:4:6 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n"
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled cuda error, NCCL "
        "version 2.14.3\nncclUnhandledCudaError: Call to CUDA function failed.\n",
        "cuda_oom",
    ),
    "the loss, then the loss scale": (
        "step 5 | loss nan | lr 1e-3\nstep 6 | loss nan | lr 1e-3\nException: Current loss scale "
        "already at minimum - cannot decrease scale anymore. Exiting run.\n",
        "nan_loss",
    ),
    "adapters that don't fit, on two ranks": (
        "[rank1]: Traceback (most recent call last):\n"
        "[rank1]: ValueError: Target modules {'q_proj'} not found in the base model. Please check\n"
        "[rank0]: ValueError: Target modules {'q_proj'} not found in the base model. Please check\n"
        "W0101 torch/distributed/elastic/multiprocessing/api.py:908] Sending process 12 closing "
        "signal SIGTERM\nE0101 torch/distributed/elastic/multiprocessing/api.py:882] failed "
        "(exitcode: 1) local_rank: 1 (pid: 12) of binary: /opt/env/bin/python\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        "============================================================\ntrain.py FAILED\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_00:00:00\n"
        "  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 12)\n",
        "lora_targets_missing",
    ),
    "columns that a mapping lacks, in a worker of datasets": (
        "Map (num_proc=2):   0%|          | 0/100 [00:00<?, ? examples/s]\n"
        'multiprocess.pool.RemoteTraceback:\n"""\nTraceback (most recent call last):\n'
        '  File "/opt/env/lib/python3.11/site-packages/trl/data_utils.py", line 10, in x\n'
        'KeyError: \'rejected\'\n"""\nThe above exception was the direct cause of the following '
        "exception:\nTraceback (most recent call last):\n"
        "  File \"/srv/run/train.py\", line 3, in <module>\nKeyError: 'rejected'\n",
        "dataset_columns",
    ),
    "Ctrl-C with several processes": (
        _STEPS
        + "Received 2 death signal, shutting down workers\nTraceback (most recent call last):\n"
        "KeyboardInterrupt\n" + _CLOSING,
        "interrupted",
    ),
}
