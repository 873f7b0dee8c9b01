"""What a process loads and finds out at its first compilation, and can have ready before.

Relies on the names below. One that a torch does not have is left out, and the first compilation takes longer.
``pick_vec_isa`` finds out which vector instructions the compiler and the processor know, by compiling a small library
and loading it in a process of its own, and keeps the answer. It runs no torch operation in the process that asks.
"""

MODULES = (
    "torch",
    "torch._dynamo",
    "torch._dynamo.backends.inductor",
    "torch._dynamo.repro.after_dynamo",
    "torch._inductor.async_compile",
    "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.cpp_wrapper_cpu_array_ref",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.codegen.halide",
    "torch._inductor.codegen.mps",
    "torch._inductor.codegen.nv_universal_gemm",
    "torch._inductor.codegen.pallas",
    "torch._inductor.codegen.rocm.rocm_cpp_scheduling",
    "torch._inductor.codegen.wrapper",
    "torch._inductor.codegen.wrapper_fxir",
    "torch._inductor.codegen.xpu.xpu_combined_scheduling",
    "torch._inductor.compile_fx",
    "torch._inductor.cpu_vec_isa",
    "torch._inductor.fx_passes.efficient_conv_bn_eval",
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.fx_passes.post_grad",
    "torch._inductor.fx_passes.quantization",
    "torch._inductor.runtime.caching",
    "torch._inductor.scheduler",
    "torch.distributed.tensor.experimental",
    "torch.export._trace",
    "torch.utils.cpp_extension",
    "sympy.physics.units",
    "sympy.tensor.tensor",
)
"""What the first compilation imports, by the package that brings in the rest."""

ANSWERS = (("torch._inductor.cpu_vec_isa", "pick_vec_isa"),)
"""Module and function: functions without arguments that remember their answer."""
