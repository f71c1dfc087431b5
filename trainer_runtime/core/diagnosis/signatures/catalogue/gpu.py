"""Failures on the GPU: illegal accesses, invalid indices, broken cards, wrong drivers."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.signatures.signature import Head, Strength, signature

PROGRAM = (
    signature(
        "cuda_illegal_memory/error",
        "illegal+memory+access|illegal+address|cudaerrorillegaladdress|illegal+instruction+cuda"
        "|misaligned+address|launch+unspecified+failure|fault+memory+access|cudaerrorlaunchfailure"
        "|cudaerrormisalignedaddress|invalid+global+read|invalid+global+write",
        r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS"
        r"|cudaErrorIllegalAddress|Warp Illegal Address"
        r"|Memory access fault by GPU node-\d+"
        r"|Invalid __global__ (?:read|write) of size"
        r"|(?:CUDA error|Triton Error \[CUDA\]|Cuda failure)[^:]{0,20}:? '?"
        r"(?:misaligned address|unspecified launch failure|an illegal instruction was encountered)"
        r"|cuda runtime error \((?:77|4|74)\) : (?:an illegal|unspecified|misaligned)",
        head=Head.WORDS,
    ),
    signature(
        "index_out_of_range/assertion",
        "assertion+failed+block|assertion+failed+thread|assertion+failed+index"
        "|assertion+failed+classes|device+assertion+index",
        r"Assertion `(?=[^`]*(?:srcIndex|[Ii]ndex|idx|\bind\b|n_classes|nClasses|cur_target|"
        r"out of bounds))[^`]*` failed"
        r"|device assertion failed: '?index out of bounds",
        head=Head.WORDS,
        confidence=0.97,
    ),
    signature(
        "index_out_of_range/embedding",
        "index+range+self|target+bounds|index+table+tried|index+embedding+range|index+dimension+bounds"
        "|token+vocabulary+exceeds|ids+vocab+range",
        r"IndexError: index out of range in self|IndexError: Target -?\d+ is out of bounds"
        r"|IndexError: index -?\d+ is out of bounds for dimension \d+ with size \d+"
        r"|index out of range: Tried to access index \d+ out of table with \d+ rows"
        r"|[Tt]oken ids? .{0,40}(?:exceeds?|out of range|>=) .{0,20}vocab\w*",
        head=Head.WORDS,
    ),
    signature(
        "index_out_of_range/device_assert",
        "assert+device+side|cudaerrorassert|cuda+error+assert",
        r"device-side assert triggered|cudaErrorAssert\b|CUDA_ERROR_ASSERT",
        head=Head.WORDS,
        unless=r"Compile with `TORCH_USE_CUDA_DSA`",
        confidence=0.75,
        strength=Strength.HINTED,
    ),
)

DRIVER = (
    signature(
        "cuda_driver_too_old/driver",
        "driver+nvidia+old|driver+insufficient+version|cudaerrorinsufficientdriver"
        "|driver+unsupported+combination|compatibility+forward+attempted|toolchain+ptx+unsupported"
        "|cuda+unsatisfied+condition|cudaerrorunsupportedptxversion|driver+insufficient+cuda",
        r"NVIDIA driver on your system is too old(?: \(found version (?P<found_cuda>\d+)\))?"
        r"|CUDA driver version is insufficient for CUDA runtime version"
        r"|cudaErrorInsufficientDriver"
        r"|system has unsupported display driver / cuda driver combination"
        r"|forward compatibility was attempted on non supported HW"
        r"|provided PTX was compiled with an unsupported toolchain"
        r"|unsatisfied condition: (?:cuda|driver)>=",
        head=Head.WORDS,
    ),
    signature(
        "cuda_arch_mismatch/kernel",
        "kernel+image+available|cudaerrornokernelimagefordevice|kernel+image+device"
        "|invalid+device+function|cudaerrorinvaliddevicefunction",
        r"no kernel image is available for execution on the device"
        r"|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|CUDA error[^:]{0,20}: invalid device function|cudaErrorInvalidDeviceFunction",
        head=Head.WORDS,
    ),
    signature(
        "cuda_arch_mismatch/installation",
        "compatible+pytorch+installation|supports+longer+old|supported+triton+old|triton+capability+old"
        "|flashattention+only+gpus|ptxas+defined+gpu|architecture+invalid+nvrtc"
        "|feature+requires+target|sm+defined+option|capability+gpu+supported+least",
        r"is not compatible with the current PyTorch installation"
        r"|PyTorch no longer supports this GPU because it is too old"
        r"|too old to be supported by the triton GPU compiler"
        r"|Triton only supports (?:devices of )?CUDA [Cc]apability"
        r"|FlashAttention(?:-?\d)? (?:forward )?only supports (?:Ampere|Turing|Hopper|Blackwell)"
        r"|Value 'sm_(?P<sm>\d+)\w*' is not defined for option 'gpu-name'"
        r"|nvrtc: error: invalid value for --gpu-architecture"
        r"|[Ff]eature '[\w. ]+' requires \.target sm_\d+ or higher",
        head=Head.WORDS,
        confidence=0.9,
    ),
)

HARDWARE = (
    signature(
        "gpu_hw_ecc/error",
        "ecc+uncorrectable|cudaerroreccuncorrectable|dbe+bit+double|uncorrectable+hardware+errors"
        "|remapping+row+failure",
        r"uncorrectable ECC error encountered|cudaErrorECCUncorrectable"
        r"|CUDA_ERROR_ECC_UNCORRECTABLE|uncorrectable double bit error|Double Bit ECC Error"
        r"|[Uu]ncorrectable ECC error|uncorrectable hardware errors? detected"
        r"|[Rr]ow [Rr]emapp\w+ [Ff]ailure",
        head=Head.WORDS,
    ),
    signature(
        "gpu_hw_ecc/xid",
        "xid+pci|xid+nvrm",
        r"Xid \(PCI:[0-9A-Fa-f:.]+\): (?P<xid>48|64|94|95|140),"
        r"|NVRM: Xid: (?P<xid_old>48|64|94|95)\b",
        head=Head.WORDS,
        confidence=0.98,
    ),
    signature(
        "gpu_fell_off_bus/xid",
        "xid+pci|xid+nvrm",
        r"Xid \(PCI:[0-9A-Fa-f:.]+\): (?P<xid>79),|NVRM: Xid: (?P<xid_old>79)\b",
        head=Head.WORDS,
        confidence=0.98,
    ),
    signature(
        "gpu_fell_off_bus/lost",
        "bus+fallen+off|lost+gpu|handle+determine+device|gpuislost|lost+gpu+reboot",
        r"fallen off the bus|GPU is lost\b|NVMLError_GpuIsLost|NVML_ERROR_GPU_IS_LOST"
        r"|Unable to determine the device handle for (?:GPU|gpu)\d* ?[0-9A-Fa-f:.]+",
        head=Head.WORDS,
    ),
    signature(
        "gpu_mmu_fault/xid",
        "xid+pci|xid+nvrm|mmu+fault+engine",
        r"Xid \(PCI:[0-9A-Fa-f:.]+\): (?P<xid>31),|NVRM: Xid: (?P<xid_old>31)\b|MMU Fault: ENGINE",
        head=Head.WORDS,
    ),
)

SIGNATURES = (*PROGRAM, *DRIVER, *HARDWARE)
