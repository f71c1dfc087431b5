"""Schedulers, clusters and clouds around a training."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

KINDS = (
    Kind(
        "pod_evicted",
        "Kubernetes removed the pod: it exceeded a limit of the node (disk, memory), or made room.",
        (
            "Write checkpoints and caches to a persistent volume (PVC) and keep fewer "
            "(save_total_limit); raise the pod's ephemeral-storage or memory limit.",
        ),
        (
            Wording(
                r"\bPod ephemeral local storage usage exceeds|\bThe node was low on resource: "
                r"|\bReason: {1,20}Evicted\b|\bStatus reason: Evicted"
                r"|\bPod was rejected: .{0,80}(?:memory|storage)",
                "Message: Pod ephemeral local storage usage exceeds the total limit of containers "
                "100Gi.",
                "Kubernetes, pkg/kubelet/eviction",
            ),
        ),
    ),
    Kind(
        "pod_not_scheduled",
        "No machine of the cluster has what the pod asks for.",
        (
            "`kubectl describe pod` names what is missing; ask for fewer GPUs, tolerate the "
            "node's taints, or wait.",
        ),
        (
            Wording(
                r"\b0/\d+ nodes are available: |\bInsufficient nvidia\.com/gpu",
                "Warning FailedScheduling 0/8 nodes are available: 8 Insufficient nvidia.com/gpu.",
                "Kubernetes, kube-scheduler",
                confidence=0.85,
            ),
        ),
        confidence=0.85,
        severity="warning",
    ),
    Kind(
        "no_capacity",
        "The cloud has no such machine free now, or the account may not have more.",
        (
            "Take another zone, region or GPU type, or wait; a quota is raised in the cloud's "
            "console.",
        ),
        (
            Wording(
                r"\bZONE_RESOURCE_POOL_EXHAUSTED|\bInsufficientInstanceCapacity\b"
                r"|\bVcpuLimitExceeded\b|\bQuota '\w+' exceeded\.|\bGPUS_ALL_REGIONS\b"
                r"|\bSkuNotAvailable\b|\bResourcesUnavailableError\b"
                r"|\bFailed to provision all possible launchable resources",
                "sky.exceptions.ResourcesUnavailableError: Failed to provision all possible "
                "launchable resources.",
                "AWS; GCP; Azure; SkyPilot",
            ),
        ),
    ),
    Kind(
        "slurm_refused",
        "Slurm does not accept the job as it is asked for.",
        (
            "Compare account, partition, QOS, time, memory and GPUs with `sinfo` and "
            "`sacctmgr show assoc user=$USER`.",
        ),
        (
            Wording(
                r"\b(?:sbatch|srun|salloc): error: (?:Batch job submission failed|Unable to "
                r"allocate resources|Invalid (?:generic resource|partition|account|qos|directive)"
                r"|Memory specification can not be satisfied|Unable to create step)"
                r"|\bRequested node configuration is not available",
                "sbatch: error: Batch job submission failed: Requested node configuration is not "
                "available",
                "Slurm, src/common/slurm_errno.c",
            ),
        ),
    ),
    Kind(
        "session_memory",
        "The notebook's session ran out of memory and was restarted: its state is gone.",
        (
            "Load less into memory (streaming, memory-mapped data, fewer workers), or take a "
            "larger machine; save checkpoints to a disk that outlives the session.",
        ),
        (
            Wording(
                r"\bYour notebook tried to allocate more memory than is available"
                r"|\bYour session crashed after using all available RAM"
                r"|\bThe kernel appears to have died|\bKernel died (?:before|unexpectedly)"
                r"|\bDeadKernelError: Kernel died",
                "Your notebook tried to allocate more memory than is available. It has restarted.",
                "Kaggle; Colab; Jupyter, nbclient",
                confidence=0.85,
            ),
            Wording(
                r"\bLoading checkpoint shards: .{0,80}\^C\s*$",
                "!python a.py --model b\nLoading checkpoint shards:   0% 0/2 [00:00<?, ?it/s]^C",
                "Colab, which ends a program so",
                after=r"(?<![\w$])!(?:python3?|accelerate|torchrun) |/content/",
                confidence=0.7,
            ),
        ),
        instead_of=("host_oom",),
        confidence=0.85,
    ),
    Kind(
        "session_limit",
        "The notebook service ended the session, or gives no GPU now: a limit of use is reached.",
        (
            "Wait until the quota is renewed, or continue elsewhere from the newest checkpoint, "
            "which has to be outside the session.",
        ),
        (
            Wording(
                r"\bYou cannot currently connect to a GPU due to usage limits"
                r"|\bYour maximum weekly GPU quota|\bMaximum weekly GPU quota"
                r"|\bRuntime disconnected\b|\bYour notebook was stopped because it exceeded the",
                "You cannot currently connect to a GPU due to usage limits in Colab.",
                "Colab; Kaggle",
                confidence=0.85,
            ),
        ),
        confidence=0.85,
    ),
    Kind(
        "ray_unreachable",
        "No cluster of Ray is reached from here.",
        (
            "`ray status` on the machine; start it (`ray start --head`), and join the others with "
            "`ray start --address=HEAD:6379`; check the port and firewall.",
        ),
        (
            Wording(
                r"\bCould not find any running Ray instance"
                r"|\bFailed to connect to (?:GCS|Ray cluster)"
                r"|\bRay Client connection timed out|\bUnable to connect to GCS",
                "ConnectionError: Could not find any running Ray instance.",
                "Ray, python/ray/_private",
            ),
        ),
        instead_of=("ray_worker_died",),
    ),
    Kind(
        "mpi_without_pmi",
        "MPI was started by srun but was not built with Slurm's PMI, so its ranks can't start.",
        (
            "Start with mpirun or torchrun, or `srun --mpi=pmix` with an Open MPI built for it "
            "(`srun --mpi=list`); without need of MPI, uninstall mpi4py.",
        ),
        (
            Wording(
                r"\bOMPI was not built with SLURM's PMI support"
                r"|\bOPAL ERROR: Unreachable in file (?:ext\dx|pmix)\w*",
                "but OMPI was not built with SLURM's PMI support and therefore cannot",
                "Open MPI, opal/mca/pmix",
            ),
        ),
    ),
    Kind(
        "ray_versions",
        "Machines of Ray's cluster have different versions of Ray or Python.",
        ("Install the same Python (to its patch) and Ray on all of them.",),
        (
            Wording(
                r"\bVersion mismatch: The cluster was started with"
                r"|\bversion mismatch: The cluster was started with",
                "RuntimeError: Version mismatch: The cluster was started with: Ray: 2.9.0",
                "Ray, python/ray/_private/utils.py",
            ),
        ),
    ),
    Kind(
        "ray_environment",
        "Ray could not set up the environment of a job or worker.",
        ("Read runtime_env_setup-*.log of the session; check pip's list and working_dir.",),
        (
            Wording(
                r"\bRuntimeEnvSetupError\b|\bFailed to set up runtime environment",
                "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.",
                "Ray, python/ray/exceptions.py",
            ),
        ),
        instead_of=("ray_worker_died",),
    ),
    Kind(
        "ray_object_store",
        "Ray's object store is full: results are kept longer than they are needed.",
        ("Let go of references, put less at a time, or start Ray with a larger object store.",),
        (
            Wording(
                r"\bObjectStoreFullError\b",
                "ray.exceptions.ObjectStoreFullError: Failed to put object",
                "Ray, python/ray/exceptions.py",
            ),
        ),
        instead_of=("ray_worker_died",),
    ),
    Kind(
        "container_without_gpu_runtime",
        "The container engine can't give GPUs to containers: NVIDIA's runtime is not set up.",
        (
            "Install nvidia-container-toolkit, run `nvidia-ctk runtime configure "
            "--runtime=docker`, and restart Docker.",
        ),
        (
            Wording(
                r"\bcould not select device driver \"(?:nvidia)?\" with capabilities: \[\[gpu"
                r"|\bunknown or invalid runtime name: nvidia|\bUnknown runtime specified nvidia"
                r"|\bfailed to initialize NVML: .{0,40}nvidia-container|\bunresolvable CDI devices",
                'Error response from daemon: could not select device driver "nvidia" with '
                "capabilities: [[gpu]]",
                "Docker; NVIDIA container toolkit",
            ),
        ),
        instead_of=("no_gpu", "container_failed"),
    ),
    Kind(
        "docker_refused",
        "Docker's daemon is not reached by this user.",
        ("Start it, or add the user to its group (`usermod -aG docker USER`, then log in again).",),
        (
            Wording(
                r"\bpermission denied while trying to connect to the Docker (?:daemon|API)"
                r"|\bCannot connect to the Docker daemon at",
                "permission denied while trying to connect to the Docker daemon socket at "
                "unix:///var/run/docker.sock",
                "Docker",
            ),
        ),
        instead_of=("not_writable",),
    ),
    Kind(
        "cloud_credentials",
        "The cloud's storage refuses access: credentials are missing, expired or without the "
        "right.",
        (
            "Renew them (an IAM role that refreshes itself outlives a training; an STS session "
            "does not), then upload what is on the local disk.",
        ),
        (
            Wording(
                r"\((?:ExpiredToken(?:Exception)?|RequestTimeTooSkewed|InvalidAccessKeyId"
                r"|SignatureDoesNotMatch|AccessDenied)\) when calling the"
                r"|\bNoCredentialsError: Unable to locate credentials"
                r"|\bToken has expired and refresh failed|\bTokenRetrievalError: "
                r"|\bDefaultCredentialsError: |\bdoes not have storage\.objects\.\w+ access"
                r"|\bAADSTS\d{5}",
                "botocore.exceptions.ClientError: An error occurred (ExpiredToken) when calling "
                "the UploadPart operation: The provided token has expired.",
                "botocore; google-auth",
            ),
        ),
    ),
    Kind(
        "cloud_object_missing",
        "A bucket or object of the cloud's storage does not exist under this name.",
        ("Check the name, the region and the account that the credentials belong to.",),
        (
            Wording(
                r"\((?:NoSuchKey|NoSuchBucket)\) when calling the"
                r"|\bThe specified (?:bucket|key|blob) does not exist",
                "botocore.errorfactory.NoSuchKey: An error occurred (NoSuchKey) when calling the "
                "GetObject operation: The specified key does not exist.",
                "botocore",
            ),
        ),
    ),
    Kind(
        "tls_untrusted",
        "The server's certificate is not trusted: a proxy signs with a CA of its own, or the "
        "machine's clock or CA list is wrong.",
        (
            "Add that CA (SSL_CERT_FILE, REQUESTS_CA_BUNDLE), check `date`, or download elsewhere "
            "and train offline (HF_HUB_OFFLINE=1).",
        ),
        (
            Wording(
                r"\bCERTIFICATE_VERIFY_FAILED\b|\bcertificate verify failed\b"
                r"|\bSSLCertVerificationError\b|\bcertificate is not yet valid",
                "httpx.ConnectError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
                "self-signed certificate in certificate chain (_ssl.c:1016)",
                "OpenSSL; Python, ssl",
                unless=r"(?i)retry",
            ),
        ),
        instead_of=("hf_network", "tracker_unreachable"),
    ),
    Kind(
        "memlock_limit",
        "The network card may not lock the memory that it needs: the limit of locked memory is "
        "too low.",
        (
            "Raise memlock to unlimited (`ulimit -l`; docker --ulimit memlock=-1; Slurm's "
            "LimitMEMLOCK in slurmd's unit).",
        ),
        (
            Wording(
                r"\bibv_(?:reg_mr\w*|create_\w+) failed(?: with error Cannot allocate memory)?"
                r"|\bibv_reg_mr_iova2? failed with error Cannot allocate memory"
                r"|\bmay need to increase .{0,40}(?:memlock|locked memory)",
                "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
                "NCCL, src/misc/ibvwrap.cc",
            ),
        ),
        instead_of=("nccl_system_error", "host_oom"),
    ),
    Kind(
        "network_interface",
        "NCCL or Gloo finds no network interface that it can use between the machines.",
        (
            "Name it: NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME (`ip addr` lists them; not "
            "docker0 or lo).",
        ),
        (
            Wording(
                r"\bBootstrap : no socket interface found|\bno socket interface found\b"
                r"|\bss_family == ss\d?\.?ss_family|\bUnable to find address for: \w+"
                r"|\bNo usable interface found"
                r"|\bNo interface found with name",
                "NCCL WARN Bootstrap : no socket interface found",
                "NCCL, src/bootstrap.cc; Gloo",
            ),
        ),
        instead_of=("nccl_system_error", "rendezvous_unreachable"),
    ),
    Kind(
        "stale_file_handle",
        "A file on a network file system was replaced or its export was remounted while it was "
        "open (stale handle).",
        (
            "Remount the file system; do not replace data in use; train from a local copy and "
            "resume.",
        ),
        (
            Wording(
                r"\[Errno 116\] Stale file handle|\bStale NFS file handle"
                r"|: Stale file handle\b|\[Errno 107\] Transport endpoint is not connected",
                "OSError: [Errno 116] Stale file handle: '/mnt/nfs/shard_1.bin'",
                "Linux, ESTALE",
                unless=r"(?i)retry",
            ),
        ),
        instead_of=("io_error",),
    ),
)
