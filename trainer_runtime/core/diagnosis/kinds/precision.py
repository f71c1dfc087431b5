"""Types of numbers, gradients and shapes of tensors that don't go together."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording
from trainer_runtime.core.diagnosis.traceback_text import Phase

KINDS = (
    Kind(
        "dtype_mismatch",
        "Tensors of different types (such as bf16 and fp32) meet in one operation.",
        (
            "Load model and adapter in one dtype, or run the step under autocast of that dtype.",
            "Modules in fp32 beside a half-precision model (norms, lm_head, a value head) need a "
            "cast.",
        ),
        (
            Wording(
                r"\bmat1 and mat2 (?:must|to) have the same dtype"
                r"|\bexpected m(?:at)?1 and m(?:at)?2 to have the same dtype"
                r"|\bexpected scalar type \w+ but found \w+"
                r"|\bInput type \(.{1,60}\) and (?:weight|bias) type \(.{1,60}\) should be the same"
                r"|\bIndex put requires the source and destination dtypes match"
                r"|\bself and mat2 must have the same dtype"
                r"|\bFound dtype \w+ but expected \w+"
                r"|\bresult type \w+ can't be cast to the desired output type"
                r"|\bExpected attn_mask dtype to be bool or|\bInvalid dtype for bias - should match"
                r"|\bExpected query, key, and value to have the same dtype",
                "RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float",
                "PyTorch, aten/src/ATen/native/LinearAlgebra.cpp",
            ),
        ),
    ),
    Kind(
        "half_on_cpu",
        "An operation has no half-precision form on the CPU.",
        ("Train in fp32 or bf16 on the CPU, or on a GPU.",),
        (
            Wording(
                r"\bnot implemented for 'Half'",
                "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
                "PyTorch, aten/src/ATen/Dispatch.h",
                unless=r"cuda",
            ),
        ),
    ),
    Kind(
        "flash_attn_dtype",
        "FlashAttention computes in fp16 and bf16 only, and got another type.",
        (
            "Load the model in bf16 or fp16 (torch_dtype), or use another attention (sdpa).",
            "With an adapter, cast layers that were upcast to fp32 back.",
        ),
        (
            Wording(
                r"\bFlashAttention only support fp16 and bf16 data type"
                r"|\bFlash Attention.{0,20} only supports torch\.float16 and torch\.bfloat16",
                "RuntimeError: FlashAttention only support fp16 and bf16 data type",
                "flash-attn, csrc/flash_attn/flash_api.cpp",
                unless=r"[Ww]arn|You are attempting to use",
            ),
        ),
    ),
    Kind(
        "flash_attn_gpu_too_old",
        "FlashAttention needs a GPU of the Ampere generation or newer.",
        ("Use attn_implementation sdpa or eager on this GPU.",),
        (
            Wording(
                r"\bFlashAttention only supports Ampere GPUs or newer",
                "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
                "flash-attn, csrc/flash_attn/flash_api.cpp",
            ),
        ),
        instead_of=("cuda_arch_mismatch",),
    ),
    Kind(
        "bf16_unsupported",
        "The device does not support bf16.",
        ("Use fp16 on GPUs before Ampere, or fp32.",),
        (
            Wording(
                r"\bBfloat16 is only supported on GPUs with compute capability of at least 8"
                r"|\bbf16/gpu.{0,80} you need Ampere\+ GPU"
                r"|\bCurrent CUDA Device does not support bfloat16"
                r"|\bbf16 requested, but AMP is not supported on this GPU"
                r"|\bfeature \.bf16' requires \.target sm_80",
                "ValueError: Bfloat16 is only supported on GPUs with compute capability of at "
                "least 8.0.",
                "vLLM, vllm/platforms/cuda.py; transformers, training_args.py",
            ),
        ),
        instead_of=("framework_settings", "config_invalid"),
    ),
    Kind(
        "fp16_unscale",
        "The gradients to unscale are in fp16: the trained weights themselves are in fp16.",
        (
            "Load the trained weights (or the adapter) in fp32 and let autocast compute in fp16, "
            "or train in bf16.",
        ),
        (
            Wording(
                r"\bAttempting to unscale FP16 gradients",
                "ValueError: Attempting to unscale FP16 gradients.",
                "PyTorch, torch/amp/grad_scaler.py",
            ),
        ),
    ),
    Kind(
        "scaler_unused",
        "The gradient scaler saw no gradient before its update: the step had none, or it was "
        "called out of order.",
        (
            "Check that the loss depends on trained parameters, and that scale, backward, step "
            "and update follow one another.",
        ),
        (
            Wording(
                r"\bNo inf checks were recorded (?:for this optimizer|prior to update)",
                "AssertionError: No inf checks were recorded for this optimizer.",
                "PyTorch, torch/amp/grad_scaler.py",
            ),
            Wording(
                r"\bunscale_\(\) has already been called on this optimizer",
                "RuntimeError: unscale_() has already been called on this optimizer since the "
                "last update().",
                "PyTorch, torch/amp/grad_scaler.py",
            ),
        ),
    ),
    Kind(
        "no_gradient",
        "No parameter that is trained takes part in the loss, so there is nothing to derive.",
        (
            "With activation checkpointing and an adapter call "
            "`model.enable_input_require_grads()`, or set use_reentrant to false.",
            "Check that the adapter's modules exist and are not frozen.",
        ),
        (
            Wording(
                r"\belement 0 of tensors does not require grad and does not have a grad_fn",
                "RuntimeError: element 0 of tensors does not require grad and does not have a "
                "grad_fn",
                "PyTorch, torch/csrc/autograd/python_engine.cpp",
            ),
        ),
    ),
    Kind(
        "optimizer_empty",
        "The optimizer has no parameters: everything is frozen.",
        ("Leave parameters trainable, or check which modules the adapter names.",),
        (
            Wording(
                r"\boptimizer got an empty parameter list",
                "ValueError: optimizer got an empty parameter list",
                "PyTorch, torch/optim/optimizer.py",
            ),
        ),
    ),
    Kind(
        "graph_freed",
        "The same part of the graph is derived twice: a loss is kept across steps, or backward "
        "runs twice.",
        (
            "Detach what is carried from step to step (hidden states, running losses).",
            "Call backward once per step.",
        ),
        (
            Wording(
                r"\bTrying to backward through the graph a second time",
                "RuntimeError: Trying to backward through the graph a second time (or directly "
                "access saved tensors after they have already been freed).",
                "PyTorch, torch/csrc/autograd/saved_variable.cpp",
            ),
        ),
    ),
    Kind(
        "inplace_changed",
        "A tensor that the backward pass needs was changed in place.",
        (
            "torch.autograd.set_detect_anomaly(True) names the operation of the forward pass.",
            "Replace in-place operations (+=, relu_) on it by others.",
        ),
        (
            Wording(
                r"\bone of the variables needed for gradient computation has been modified by an "
                r"inplace operation|\ba leaf Variable that requires grad is being used in an "
                r"in-place operation",
                "RuntimeError: one of the variables needed for gradient computation has been "
                "modified by an inplace operation",
                "PyTorch, torch/csrc/autograd/saved_variable.cpp",
            ),
        ),
    ),
    Kind(
        "marked_ready_twice",
        "DDP met a parameter twice in one backward pass: activation checkpointing with "
        "re-entrance, or shared parameters.",
        ("Use use_reentrant=False, or static_graph=True, or no find_unused_parameters.",),
        (
            Wording(
                r"\bExpected to mark a variable ready only once",
                "RuntimeError: Expected to mark a variable ready only once. This error is caused "
                "by one of the following reasons",
                "PyTorch, torch/csrc/distributed/c10d/reducer.cpp",
            ),
        ),
        instead_of=("ddp_unused_params",),
    ),
    Kind(
        "recomputation_differs",
        "Activation checkpointing recomputed other tensors than the forward pass had saved.",
        (
            "Keep what the forward pass decides on (cache, dropout state, autocast) the same when "
            "it runs again; set use_cache to false.",
        ),
        (
            Wording(
                r"\btorch\.utils\.checkpoint: (?:Recomputed values|A different number of tensors)",
                "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values "
                "for the following tensors have different metadata",
                "PyTorch, torch/utils/checkpoint.py",
            ),
        ),
    ),
    Kind(
        "device_mismatch",
        "Tensors of one operation lie on different devices.",
        (
            "With device_map in training, give each process the whole model on its own GPU "
            "(device_map={'': local_rank}), or none.",
            "Move inputs and modules to one device.",
        ),
        (
            Wording(
                r"\bExpected all tensors to be on the same device, but"
                r"|\bInput type \(torch\.(?:cuda\.\w+\) and weight type \(torch\.(?!cuda)\w+"
                r"|(?!cuda)\w+\) and weight type \(torch\.cuda\.\w+)\) should",
                "RuntimeError: Expected all tensors to be on the same device, but found at least "
                "two devices, cuda:0 and cuda:1!",
                "PyTorch, aten/src/ATen/TensorIterator.cpp",
            ),
        ),
        instead_of=("dtype_mismatch",),
    ),
    Kind(
        "device_map_in_training",
        "A model that is split over devices by device_map=auto is trained by several processes.",
        (
            "Start one process for it, or load it with device_map={'': local_rank} or none.",
            "For a model larger than one GPU use FSDP or ZeRO-3 instead.",
        ),
        (
            Wording(
                r"\b[Yy]ou can't train a model that has been loaded (?:in|with)"
                r" (?:8-bit or 4-bit precision on a different device"
                r"|.device_map=.auto.. in any distributed mode)"
                r"|\bcan't train a model that has been loaded in .{0,40}on a different device",
                "ValueError: You can't train a model that has been loaded with "
                "`device_map='auto'` in any distributed mode.",
                "accelerate, accelerator.py",
                unless=r"\bI\b",
            ),
        ),
    ),
    Kind(
        "meta_tensor",
        "Weights were never loaded: the tensor has no data (it is on the meta device).",
        (
            "Do not move a model that was made with empty weights or offloaded by device_map; "
            "load it without device_map or low_cpu_mem_usage.",
        ),
        (
            Wording(
                r"\bCannot copy out of meta tensor; no data"
                r"|\bTensor on device meta is not on the expected device",
                "NotImplementedError: Cannot copy out of meta tensor; no data!",
                "PyTorch, aten/src/ATen/native/TensorConversions.cpp",
            ),
        ),
    ),
    Kind(
        "shape_mismatch",
        "Two tensors of one operation have shapes that don't fit.",
        (
            "Print both shapes at the place in the evidence; a wrong sequence length, vocabulary "
            "or number of heads is the usual reason.",
        ),
        (
            Wording(
                r"\bmat1 and mat2 shapes cannot be multiplied"
                r"|\bThe size of tensor a \(\d+\) must match the size of tensor b \(\d+\)"
                r"|\bshape '\[.{1,80}\]' is invalid for input of size \d+"
                r"|\bstack expects each tensor to be equal size"
                r"|\bThe expanded size of the tensor \(\d+\) must match the existing size"
                r"|\bSizes of tensors must match except in dimension"
                r"|\bdoesn't match the broadcast shape|\b[Ii]ncompatible shapes\b"
                r"|\bValueError: Shapes .{1,80} are incompatible"
                r"|\bExpected input batch_size \(\d+\) to match target batch_size"
                r"|\bGiven groups=\d+, weight of size \[.{1,60}\], expected input",
                "RuntimeError: The size of tensor a (2048) must match the size of tensor b (1024) "
                "at non-singleton dimension 1",
                "PyTorch, aten/src/ATen/ExpandUtils.cpp",
                not_phases=(Phase.COLLATING,),
            ),
        ),
        confidence=0.65,  # what happened, not why
    ),
    Kind(
        "quantized_training",
        "Quantized weights can't be trained themselves.",
        ("Add an adapter (adapter: {kind: lora}), or load the model unquantized.",),
        (
            Wording(
                r"\bYou cannot perform fine-tuning on purely quantized models"
                r"|\bThe model you are trying to fine-tune is quantized with"
                r"|\bThe model you want to train is loaded in 8-bit precision"
                r"|\b[Oo]nly (?:a )?Tensors? of floating point (?:and complex )?dtype can require",
                "ValueError: You cannot perform fine-tuning on purely quantized models. Please "
                "attach trainable adapters on top of the quantized model",
                "transformers, trainer.py",
            ),
        ),
    ),
    Kind(
        "recompile_limit",
        "torch.compile compiled a function again and again, up to its limit.",
        (
            "Mark what changes from step to step as dynamic (dynamic=True), or pad to fixed sizes.",
            "Without fullgraph it continues uncompiled; or set compute.compile to false.",
        ),
        (
            Wording(
                r"\bFailOnRecompileLimitHit|\brecompile_limit reached with fullgraph=True"
                r"|\b(?:cache_size_limit|recompile_limit) reached with",
                "torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached with "
                "fullgraph=True.",
                "PyTorch, torch/_dynamo/convert_frame.py",
            ),
        ),
    ),
    Kind(
        "compile_failed",
        "torch.compile failed to compile the model.",
        (
            "Set compute.compile to false, or report the graph that fails: "
            "TORCHDYNAMO_VERBOSE=1 shows it.",
        ),
        (
            Wording(
                r"\btorch\._dynamo\.exc\.(?:Unsupported|InternalTorchDynamoError|BackendCompilerFailed"
                r"|TorchRuntimeError|UserError)\b|\btorch\._inductor\.exc\.\w+",
                "torch._dynamo.exc.Unsupported: call_function BuiltinVariable(print)",
                "PyTorch, torch/_dynamo/exc.py",
                unless=r"(?i)warn|CppCompileError|InvalidCxxCompiler|TritonMissing|GPUTooOld",
            ),
        ),
        follows=("triton_missing", "compiler_missing", "cuda_oom", "index_out_of_range"),
        confidence=0.8,
    ),
)
