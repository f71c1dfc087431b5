"""GPUs, their driver and libraries on a machine."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

KINDS = (
    Kind(
        "fabric_manager",
        "The GPUs of this machine are joined by NVSwitch, and their fabric manager is not running "
        "or of another version than the driver.",
        (
            "Start it (`systemctl start nvidia-fabricmanager`) in the driver's version, or take "
            "another machine.",
        ),
        (
            Wording(
                r"\bError 802: system not yet initialized|\bCUDA_ERROR_SYSTEM_NOT_READY"
                r"|\bcudaErrorSystemNotReady",
                "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not "
                "yet initialized",
                "CUDA runtime, error 802",
            ),
        ),
        instead_of=("cuda_driver_too_old",),
    ),
    Kind(
        "driver_mismatch",
        "The NVIDIA driver's library and its kernel module are of different versions: it was "
        "updated without a restart.",
        ("Restart the machine (or reload the module); in a container, recreate it.",),
        (
            Wording(
                r"\bFailed to initialize NVML: Driver/library version mismatch"
                r"|\bDriver/library version mismatch"
                r"|\bNVML library version mismatch",
                "Failed to initialize NVML: Driver/library version mismatch",
                "NVIDIA, NVML",
            ),
        ),
        instead_of=("cuda_driver_too_old",),
    ),
    Kind(
        "no_gpu",
        "The program finds no GPU.",
        (
            "Check `nvidia-smi`, CUDA_VISIBLE_DEVICES, and that PyTorch is a build with CUDA; in a "
            "container, that its engine passes the GPUs on.",
        ),
        (
            Wording(
                r"\bNo (?:CUDA|HIP) GPUs are available|\bTorch not compiled with CUDA enabled"
                r"|\bFound no NVIDIA driver on your system|\bhas no attribute '_cuda_setDevice'"
                r"|\bCUDA driver initialization failed, you might not have"
                r"|\bNo supported gpu backend|\bcannot find any torch accelerator"
                r"|\bcudaErrorNoDevice|\bno CUDA-capable device is detected"
                r"|\bCUDA unknown error - this may be due to an incorrectly set up environment"
                r"|\bcould not select device driver \"\" with capabilities: \[\[gpu\]\]",
                "RuntimeError: No CUDA GPUs are available",
                "PyTorch, torch/cuda/__init__.py",
                unless=r"(?i)warn",
            ),
            Wording(
                r"\b\w*Error: .{0,120}\b(?:need a GPU|requires a GPU|[Nn]o GPUs?)\b",
                "NotImplementedError: Own cannot find an accelerator. You need a GPU.",
                "Unsloth, device_type.py",
                unless=r"precision",
                confidence=0.8,
            ),
        ),
        instead_of=("cuda_driver_too_old",),
    ),
    Kind(
        "fewer_gpus_than_processes",
        "More processes were started than there are GPUs, or several took the same one.",
        (
            "Start as many processes as GPUs (nproc_per_node), and set the device by LOCAL_RANK "
            "before the first collective.",
        ),
        (
            Wording(
                r"\bDuplicate GPU detected : rank|\bCUDA error: invalid device ordinal"
                r"|\bcudaErrorInvalidDevice: invalid device ordinal",
                "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000",
                "NCCL, src/init.cc",
            ),
        ),
        instead_of=("nccl_system_error", "cuda_illegal_memory"),
    ),
    Kind(
        "cublas_failed",
        "A matrix product failed in cuBLAS. A build of PyTorch or CUDA that is too old for the "
        "GPU's architecture, no memory left, or an index out of range before it are the reasons.",
        (
            "Compare the GPU's architecture with torch.cuda.get_arch_list(); a newer build of "
            "PyTorch and CUDA.",
            "Run once on the CPU or with CUDA_LAUNCH_BLOCKING=1: an index out of range shows "
            "there.",
        ),
        (
            Wording(
                r"\bCUBLAS_STATUS_(?:EXECUTION_FAILED|NOT_INITIALIZED|INTERNAL_ERROR"
                r"|INVALID_VALUE|NOT_SUPPORTED|ARCH_MISMATCH)\b",
                "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling "
                "`cublasSgemm(handle)`",
                "PyTorch, aten/src/ATen/cuda/CUDABlas.cpp",
                unless=r"(?i)warn",
                confidence=0.7,
            ),
        ),
        follows=("index_out_of_range", "cuda_oom", "cuda_illegal_memory"),
        confidence=0.7,
    ),
    Kind(
        "cudnn_failed",
        "cuDNN failed: its version does not fit, or memory is short.",
        ("Check that one cuDNN is found (PyTorch brings its own; leave LD_LIBRARY_PATH empty).",),
        (
            Wording(
                r"\bCUDNN_STATUS_(?:NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR"
                r"|SUBLIBRARY_\w+|NOT_SUPPORTED)\b|\bFIND was unable to find an engine to execute"
                r"|\bDNN library initialization failed",
                "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
                "PyTorch, aten/src/ATen/cudnn",
                unless=r"(?i)warn",
                confidence=0.75,
            ),
        ),
    ),
    Kind(
        "gpu_busy_exclusive",
        "The GPU is used by another process, and is set to serve one only.",
        ("End the other process (nvidia-smi shows it), or use a free GPU.",),
        (
            Wording(
                r"\ball CUDA-capable devices are busy or unavailable|\bcudaErrorDevicesUnavailable"
                r"|\bCUDA error: exclusive-thread device already in use",
                "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
                "CUDA runtime, error 46",
            ),
        ),
    ),
    Kind(
        "gpu_too_hot",
        "The GPU slowed down for heat.",
        ("Check cooling and power; the machine's operator has to inspect it.",),
        (
            Wording(
                r"\bSW Thermal Slowdown {0,40}: Active\b|\bHW Thermal Slowdown {0,40}: Active\b",
                "        HW Thermal Slowdown                            : Active",
                "nvidia-smi -q, clocks event reasons",
                confidence=0.8,
            ),
        ),
    ),
    Kind(
        "nvlink_error",
        "The link between GPUs (NVLink) reported errors: usually hardware.",
        ("Restart the machine; if it recurs, have the machine repaired or take another.",),
        (
            Wording(
                r"\bXid \(.{1,40}\): (?:74|144|145|149|150)\b|\bNVLink: fatal error detected"
                r"|\bCUDA error: NVLink error|\bcudaErrorNvlinkUncorrectable"
                r"|\bCUDA error: uncorrectable NVLink error",
                "NVRM: Xid (PCI:0000:0f:00): 149, NETIR_LINK_EVT",
                "NVIDIA, Xid 74, 144-150",
            ),
        ),
    ),
    Kind(
        "gpu_firmware_error",
        "The GPU's own processor or memory handling failed; the driver reports it by its number.",
        ("Reset the GPU or restart the machine; if it recurs, have the card checked.",),
        (
            Wording(
                r"\bXid \(.{1,40}\): (?:13|32|38|45|61|62|69|109|119|120|136|140|143|154)\b",
                "NVRM: Xid (PCI:0000:0f:00): 119, Timeout after 6s of waiting for RPC response "
                "from GPU0 GSP",
                "NVIDIA, Xid errors",
                confidence=0.7,
            ),
        ),
        confidence=0.7,
        ends=False,
    ),
    Kind(
        "gpu_lost_in_container",
        "The container lost its GPUs: the host's services were reloaded while it ran.",
        ("Recreate the container; the host needs the fix for systemd's cgroups.",),
        (
            Wording(
                r"\bFailed to initialize NVML: Unknown Error",
                "Failed to initialize NVML: Unknown Error",
                "NVIDIA container toolkit",
            ),
        ),
    ),
    Kind(
        "xla_error",
        "JAX or XLA can't use the accelerator.",
        (
            "Check that only one process uses it, and that jax and its plugin (jaxlib, libtpu) are "
            "of versions that go together.",
        ),
        (
            Wording(
                r"\bUnable to initialize backend '(?:tpu|cuda|rocm)'"
                r"|\bjaxlib version \S+ is newer than and incompatible with jax",
                "RuntimeError: Unable to initialize backend 'tpu': UNAVAILABLE: No TPU platform "
                "available.",
                "JAX, jax/_src/xla_bridge.py",
            ),
        ),
    ),
    Kind(
        "tpu_in_use",
        "Another process holds the TPU; only one can use it.",
        (
            "End the process whose number the message names (an earlier training, a notebook's "
            "kernel); `sudo lsof -w /dev/accel0` lists them.",
        ),
        (
            Wording(
                r"\bThe TPU is already in use by process|\blibtpu\.so is already in use"
                r"|\blibtpu_lockfile",
                "RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in "
                "use by process with pid 7.",
                "libtpu; JAX, jax/_src/xla_bridge.py",
            ),
        ),
        instead_of=("xla_error",),
    ),
    Kind(
        "mps_unsupported",
        "An operation does not exist on Apple's GPUs.",
        ("Set PYTORCH_ENABLE_MPS_FALLBACK=1: it then runs on the CPU.",),
        (
            Wording(
                r"\bis not currently implemented for the MPS device",
                "NotImplementedError: The operator 'aten::_unique2' is not currently implemented "
                "for the MPS device.",
                "PyTorch, aten/src/ATen/mps",
            ),
        ),
    ),
    Kind(
        "mps_float64",
        "Apple's GPUs have no float64, and a tensor of that type (NumPy's default) goes there.",
        (
            "Convert it first: `array.astype(np.float32)`, `tensor.float()`; PYTORCH_ENABLE_MPS_"
            "FALLBACK doesn't help here.",
        ),
        (
            Wording(
                r"\bthe MPS framework doesn't support float64",
                "TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework "
                "doesn't support float64. Please use float32 instead.",
                "PyTorch, aten/src/ATen/mps",
            ),
        ),
    ),
    Kind(
        "rocm_error",
        "A kernel failed on an AMD GPU; the build may have none for this card.",
        (
            "Compare the card (rocminfo) with torch.cuda.get_arch_list(); HSA_OVERRIDE_GFX_VERSION "
            "helps for a relative of a supported card.",
        ),
        (
            Wording(
                r"\bHIP error: (?:invalid device function|no kernel image is available"
                r"|an illegal memory access)|\bhipErrorNoBinaryForGpu",
                "RuntimeError: HIP error: invalid device function",
                "ROCm, HIP runtime",
            ),
        ),
        instead_of=("cuda_arch_mismatch", "cuda_illegal_memory"),
    ),
)
