"""Kernels, quantized weights and offloading: what a GPU or a build can't do."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

KINDS = (
    Kind(
        "attention_kernel_missing",
        "No attention kernel of this build fits the GPU, the type and the shape.",
        (
            'Use attn_implementation="eager", or another dtype: fp16 on GPUs before Ampere, bf16 '
            "or fp16 in the place of fp32.",
            "Where cuDNN refuses: torch.backends.cuda.enable_cudnn_sdp(False).",
        ),
        (
            Wording(
                r"\bcutlassF: no kernel found to launch"
                r"|\bNo available kernel\. Aborting execution"
                r"|\bNo operator found for .memory_efficient_attention"
                r"|\bNo (?:valid )?execution plans? (?:support|built)\w*"
                r"|\bNo valid attention backend found|\bcutlassB: no kernel found",
                "RuntimeError: cutlassF: no kernel found to launch!",
                "PyTorch, aten/src/ATen/native/transformers/cuda; xformers",
            ),
        ),
    ),
    Kind(
        "flash_attn_head_dim",
        "FlashAttention does not support this model's head dimension, on this GPU.",
        ('Use attn_implementation="sdpa"; its kernels take larger heads.',),
        (
            Wording(
                r"\bFlashAttention (?:forward )?only supports head dimension"
                r"|\bFlashAttention backward for head dim > \d+ requires",
                "RuntimeError: FlashAttention forward only supports head dimension at most 256",
                "flash-attn, csrc/flash_attn/flash_api.cpp",
            ),
        ),
    ),
    Kind(
        "mask_overflow",
        "A mask's number does not fit into half precision.",
        (
            "Upgrade the model's code (a mask of torch.finfo(dtype).min), or use bf16 in the "
            "place of fp16.",
        ),
        (
            Wording(
                r"\bvalue cannot be converted to type (?:at::Half|c10::Half) without overflow",
                "RuntimeError: value cannot be converted to type at::Half without overflow",
                "PyTorch, c10/util/TypeCast.h",
            ),
        ),
    ),
    Kind(
        "triton_gpu_too_old",
        "The GPU is too old for Triton, with which torch.compile makes kernels.",
        ("Set compute.compile to false on this GPU, or take one of compute capability 7.0 on.",),
        (
            Wording(
                r"\bis too old to be supported by the triton GPU compiler|\bGPUTooOldForTriton\b",
                "RuntimeError: Found NVIDIA GeForce GTX 1080 which is too old to be supported by "
                "the triton GPU compiler",
                "PyTorch, torch/_inductor/scheduler.py",
            ),
        ),
        instead_of=("compile_failed", "triton_missing", "cuda_arch_mismatch"),
    ),
    Kind(
        "cuda_forward_compat",
        "The container's CUDA is newer than the host's driver, and this card has no forward "
        "compatibility (consumer cards).",
        (
            "Update the host's driver, or take an image of an older CUDA; a compat library on "
            "LD_LIBRARY_PATH also leads to this.",
        ),
        (
            Wording(
                r"\bError 804: forward compatibility was attempted|\bforward compatibility was "
                r"attempted on non supported HW|\bunsatisfied condition: cuda>=",
                "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward "
                "compatibility was attempted on non supported HW",
                "CUDA runtime, error 804; nvidia-container-cli",
            ),
        ),
        instead_of=("cuda_driver_too_old", "container_failed"),
    ),
    Kind(
        "driver_not_loaded",
        "The NVIDIA driver does not answer: its kernel module is not loaded.",
        (
            "Reinstall it for the running kernel (a kernel update needs that) or restart; "
            "`lsmod` and `dmesg` say more.",
        ),
        (
            Wording(
                r"\bNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver"
                r"|\bNVRM: API mismatch|\bmodprobe: FATAL: Module nvidia not found",
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
                "NVIDIA, nvidia-smi",
            ),
        ),
        instead_of=("no_gpu", "driver_mismatch"),
    ),
    Kind(
        "cuda_not_started",
        "CUDA could not be started in the process.",
        (
            "Check `nvidia-smi`, the visible devices, and that no process used CUDA before a "
            "fork; after a suspend, reload nvidia_uvm or restart.",
        ),
        (
            Wording(
                r"\bCUDA error: initialization error|\bError 3: initialization error"
                r"|\bError 999: unknown error|\bcudaErrorInitializationError",
                "RuntimeError: CUDA error: initialization error",
                "CUDA runtime, errors 3 and 999",
                unless=r"(?i)warn",
                confidence=0.8,
            ),
        ),
        instead_of=("no_gpu",),
        confidence=0.8,
    ),
    Kind(
        "kernel_launch",
        "A kernel was started in a way that the GPU can't run it.",
        (
            "Restart with CUDA_LAUNCH_BLOCKING=1 to see which; too large a grid (a huge batch or "
            "vocabulary) or too much shared memory is usual.",
        ),
        (
            Wording(
                r"\bCUDA error: (?:invalid configuration argument|too many resources requested for"
                r" launch|the launch timed out and was terminated|invalid argument)"
                r"|\bCUDA error: invalid configuration",
                "RuntimeError: CUDA error: invalid configuration argument",
                "CUDA runtime, error 9",
                confidence=0.8,
            ),
        ),
        confidence=0.8,
    ),
    Kind(
        "quantized_moved",
        "A quantized model is moved or cast, which it can't be.",
        (
            "Leave out `.to(...)`, `.cuda()` and `.half()`: it lies on its device already; choose "
            "that by device_map.",
        ),
        (
            Wording(
                r"\b`\.(?:to|cuda|half|float)` is not supported for `?\d-bit"
                r"|\bCalling `cuda\(\)` is not supported for `\d-bit"
                r"|`\.to` is not supported for|\byou cannot cast a bitsandbytes model",
                "ValueError: `.to` is not supported for `4-bit` or `8-bit` bitsandbytes models.",
                "transformers, modeling_utils.py",
            ),
        ),
    ),
    Kind(
        "quantized_offload",
        "The quantized model does not fit into the GPUs' memory, and parts of it would go to the "
        "CPU.",
        (
            "Free the GPU or take a larger one; llm_int8_enable_fp32_cpu_offload with a "
            "device_map of your own lets parts stay on the CPU (for inference).",
        ),
        (
            Wording(
                r"\bSome modules are dispatched on the CPU or the disk",
                "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you "
                "have enough GPU RAM to fit the quantized model.",
                "transformers, quantizers/quantizer_bnb_4bit.py",
            ),
        ),
    ),
    Kind(
        "quantized_twice",
        "Weights that are quantized already are to be quantized again.",
        ("Load the checkpoint without a quantization_config, or take the unquantized one.",),
        (
            Wording(
                r"\bBlockwise (?:\w+ )?quantization only supports 16/32-bit floats"
                r"|\bquantization_config.{0,80}but your model is already instantiated"
                r"|\bThe model is already quantized with",
                "ValueError: Blockwise quantization only supports 16/32-bit floats, but got "
                "torch.uint8",
                "bitsandbytes, functional.py",
            ),
        ),
    ),
    Kind(
        "offload_folder_missing",
        "A part of the model goes to the disk, and no folder was named for it.",
        ("Pass offload_folder, or free memory so that the model fits.",),
        (
            Wording(
                r"\bplease pass along an `offload_folder`"
                r"|\bPlease provide an `offload_folder`",
                "ValueError: At least one of the model submodule will be offloaded to disk, please "
                "pass along an `offload_folder`.",
                "accelerate, utils/modeling.py",
            ),
        ),
    ),
    Kind(
        "evaluation_memory",
        "Evaluation keeps the logits of all rows on the GPU until it has no memory left.",
        (
            "Reduce them at once (preprocess_logits_for_metrics), move them to the host now and "
            "then (eval_accumulation_steps), or keep the loss alone (prediction_loss_only).",
        ),
        (
            Wording(
                r"\b(?:OutOfMemoryError|CUDA out of memory)",
                'Traceback (most recent call last):\n  File "/env/transformers/trainer_pt_utils.py"'
                ", line 88, in nested_concat\ntorch.OutOfMemoryError: CUDA out of memory. Tried to "
                "allocate 9.84 GiB.",
                "transformers, trainer_pt_utils.py",
                after=r"\bnested_concat\b|\btorch_pad_and_concatenate\b|\ball_preds\b",
            ),
        ),
        instead_of=("cuda_oom",),
    ),
    Kind(
        "triton_compile",
        "Triton could not compile a kernel for this GPU: its version does not fit the card, or "
        "the kernel's type (bf16 on GPUs before Ampere).",
        (
            "Use fp16 on such a GPU, install the Triton that belongs to PyTorch, or switch off "
            "what brings the kernel (compute.compile, a fused loss).",
        ),
        (
            Wording(
                r"\bPassManager::run failed|\btriton\.compiler\.errors\.CompilationError"
                r"|\bTriton Error \[CUDA\]: |\bLLVM ERROR: Cannot select",
                "RuntimeError: PassManager::run failed",
                "Triton, python/triton/compiler",
                confidence=0.8,
            ),
        ),
        instead_of=("compile_failed",),
        follows=("cuda_oom", "cuda_illegal_memory"),
        confidence=0.8,
    ),
    Kind(
        "operation_not_implemented",
        "This version of PyTorch has no kernel of an operation for this type.",
        ("Upgrade PyTorch, or cast around that operation (labels to long, masks to float).",),
        (
            Wording(
                r"\" not implemented for '(?!Half)\w+'",
                "RuntimeError: \"triu_tril_cuda_template\" not implemented for 'BFloat16'",
                "PyTorch, aten/src/ATen/Dispatch.h",
            ),
        ),
        instead_of=("half_on_cpu",),
    ),
    Kind(
        "tensor_to_numpy",
        "A tensor that is on the GPU, has a gradient, or is bf16 is handed to NumPy.",
        ("Write `x.detach().float().cpu().numpy()`.",),
        (
            Wording(
                r"\bcan't convert \w+:\d device type tensor to numpy"
                r"|\bCan't call numpy\(\) on Tensor that requires grad"
                r"|\bGot unsupported ScalarType BFloat16",
                "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to "
                "copy the tensor to host memory first.",
                "PyTorch, torch/csrc/utils/tensor_numpy.cpp",
            ),
        ),
    ),
    Kind(
        "not_serializable",
        "A value that JSON has no form for (a tensor, a NumPy number, a dtype) is to be written.",
        ("Convert it first: `.item()`, `float(x)`, `str(dtype)`.",),
        (
            Wording(
                r"\bObject of type \w+ is not JSON serializable",
                "TypeError: Object of type float32 is not JSON serializable",
                "Python, json/encoder.py",
            ),
        ),
    ),
    Kind(
        "model_arguments",
        "The batch has a column, or the trainer an argument, that the model's forward pass does "
        "not take.",
        (
            "Leave that column out (return_token_type_ids=False, remove_unused_columns=True); "
            "with a model of your own accept **kwargs.",
        ),
        (
            Wording(
                r"\bforward\(\) got an unexpected keyword argument '\w+'"
                r"|\bforward\(\) missing \d+ required positional argument"
                r"|\bThe following .model_kwargs. are not used by the model",
                "TypeError: LlamaForCausalLM.forward() got an unexpected keyword argument "
                "'token_type_ids'",
                "transformers, models",
                unless="num_items_in_batch",
                confidence=0.85,
            ),
        ),
        instead_of=("library_versions",),
        confidence=0.85,
    ),
    Kind(
        "weight_names",
        "The weights lack a tensor of this name: the checkpoint is of another architecture, or "
        "its names have another prefix.",
        (
            "Compare the names in the file (safetensors' keys) with model.state_dict().keys(); "
            "an adapter alone is not a model, and wrappers add prefixes.",
        ),
        (
            Wording(
                r"\bKeyError: '(?:model|base_model|transformer|lm_head|encoder|decoder|module)\."
                r"[\w.]{1,200}(?:weight|bias|absmax|qweight)'",
                "KeyError: 'model.layers.0.self_attn.q_proj.weight'",
                "transformers; vLLM, model_loader",
                confidence=0.8,
            ),
        ),
        confidence=0.8,
    ),
    Kind(
        "import_broken",
        "A module of transformers could not be imported; the line below the message has the "
        "reason.",
        (
            "Import it alone (`python -c 'import ...'`) to see the whole error; an optional "
            "package of another version (flash-attn, torchvision, bitsandbytes) is usual.",
        ),
        (
            Wording(
                r"\bFailed to import \S{1,120} because of the following error",
                "RuntimeError: Failed to import transformers.models.llama because of the following "
                "error:",
                "transformers, utils/import_utils.py",
                confidence=0.6,
            ),
        ),
        confidence=0.6,
        ends=False,
    ),
    Kind(
        "kernel_shared_memory",
        "A Triton kernel needs more on-chip memory than this GPU has: its blocks are made for a "
        "larger card. The GPU's main memory is not short.",
        (
            "Take smaller block sizes or num_stages for this kernel, a shorter head dimension or "
            "chunk, or the library's version for this card.",
        ),
        (
            Wording(
                r"\bOutOfResources: out of resources?: shared memory, Required: \d+"
                r"|\bCUDA error: too much shared memory|\bptxas error .{0,60}uses too much shared",
                "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: "
                "131072, Hardware limit: 101376.",
                "Triton, runtime/errors.py",
                unless=r"(?i)\bwarn|autotun|ignor",
            ),
        ),
        instead_of=("shm_too_small", "triton_compile"),
    ),
    Kind(
        "apex_missing",
        "A fused kernel is switched on whose CUDA extension (NVIDIA Apex) is not built here.",
        (
            "Switch it off (Megatron: --no-gradient-accumulation-fusion, or another norm), or "
            "build Apex with its extensions (--cpp_ext --cuda_ext).",
        ),
        (
            Wording(
                r"\bfused_weight_gradient_mlp_cuda\b.{0,40}\bnot found"
                r"|\bNo module named '(?:apex(?:\.[\w.]+)?|amp_C|fused_layer_norm_cuda"
                r"|fused_weight_gradient_mlp_cuda)'",
                "RuntimeError: gradient_accumulation_fusion set to True but the custom CUDA "
                "extension fused_weight_gradient_mlp_cuda module is not found.",
                "Megatron-LM, megatron/core/tensor_parallel/layers.py",
                unless=r"(?i)warn",
            ),
        ),
        instead_of=("package_missing",),
    ),
)
