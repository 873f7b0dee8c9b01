"""Names every private torch API that capture's adapters rely on: a new torch release breaks here first."""

import inspect

import torch
import torch._dynamo


def test_dynamo_names() -> None:
    from torch._dynamo import convert_frame, symbolic_convert
    from torch._dynamo.eval_frame import _optimize
    from torch._guards import CompileContext, CompileId, Guard, TracingContext

    assert {"backend", "dynamic", "guard_export_fn", "guard_fail_fn"} <= set(inspect.signature(_optimize).parameters)
    assert callable(torch._dynamo.optimize)
    assert callable(torch._dynamo.reset)
    parameters = inspect.signature(symbolic_convert.InstructionTranslatorBase.log_graph_break).parameters
    assert list(parameters)[:3] == ["self", "code_options", "reason"]
    assert hasattr(convert_frame, "graph_break_log")
    assert callable(CompileContext.current_compile_id)
    assert {"frame_id", "frame_compile_id"} <= set(CompileId.__annotations__)
    assert callable(TracingContext.extract_stack)
    assert {"name", "source", "create_fn_name"} <= set(dir(Guard))
    assert {"code_list", "user_stack", "obj_weakref"} <= set(Guard.__dataclass_fields__)


def test_frame_names() -> None:
    from torch._dynamo import convert_frame, exc, types
    from torch._dynamo.backends import registry

    converter = convert_frame.ConvertFrameAssert(lambda gm, inputs: gm, one_graph=False)
    assert {"_torchdynamo_orig_backend", "_one_graph", "_export", "_box"} <= set(vars(converter))
    assert "guarded_code" in types.ConvertFrameReturn.__dataclass_fields__
    assert issubclass(exc.BackendCompilerFailed, exc.TorchDynamoException)
    assert not issubclass(exc.BackendCompilerFailed, (exc.Unsupported, exc.UserError))  # Dynamo would suppress it
    assert {"compiler_fn", "kwargs"} <= set(vars(torch._TorchCompileWrapper("eager", None, None, None)))
    assert {"compiler_fn"} <= set(inspect.signature(convert_frame.ConvertFrameAssert.__init__).parameters)
    registered = inspect.getsource(registry)
    assert all(name in registered for name in ("_COMPILER_FNS[name] = ", "_BACKENDS[", ".load()"))


def test_guard_hook_names() -> None:
    from torch._dynamo import convert_frame, guards, output_graph
    from torch._guards import DuplicateInputs, StorageOverlap

    assert guards.guard_manager_testing_hook_fn is None
    parameters = inspect.signature(convert_frame.exceeds_recompile_limit).parameters
    assert list(parameters) == ["cache_size", "compile_id"]
    assert isinstance(torch._dynamo.config.recompile_limit, int)
    assert isinstance(torch._dynamo.config.accumulated_recompile_limit, int)
    assert "f_code" in inspect.signature(guards.GuardBuilder.__init__).parameters
    builder = inspect.getsource(guards.GuardBuilder)
    assert all(f"self.{name}" in builder for name in ("f_code", "no_tensor_aliasing_names", "check_fn_manager"))
    assert "input_source_to_sizes_strides" in inspect.getsource(output_graph)
    assert {"input_source_a", "input_source_b"} <= set(DuplicateInputs.__dataclass_fields__)
    assert {"overlapping_sources", "non_overlapping_sources"} <= set(StorageOverlap.__dataclass_fields__)


def test_guard_failures_carry_reason_and_code() -> None:
    from torch._dynamo.types import GuardFail

    assert {"reason", "orig_code"} <= set(GuardFail._fields)


def test_dynamo_placeholders_carry_their_source_and_example() -> None:
    from torch._dynamo.variables.builder import GraphArg

    assert {"source", "example"} <= set(dir(GraphArg)) | set(GraphArg.__dataclass_fields__)


def test_aot_names() -> None:
    from functorch.compile import default_partition, make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.descriptors import PlainAOTInput, TangentAOTInput

    assert callable(aot_autograd)
    assert callable(make_boxed_func)
    assert list(inspect.signature(default_partition).parameters)[:2] == ["joint_module", "_joint_inputs"]
    assert "idx" in PlainAOTInput.__dataclass_fields__
    assert "output" in TangentAOTInput.__dataclass_fields__


def test_symbolic_shape_names() -> None:
    from torch.fx.experimental.sym_node import SymNode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    environment = ShapeEnv()
    assert hasattr(environment, "var_to_range")
    assert hasattr(environment, "backed_var_to_val") or hasattr(environment, "var_to_val")
    assert {"expr", "hint", "has_hint", "maybe_as_int"} <= set(dir(SymNode))


def test_flop_names() -> None:
    from torch.utils import flop_counter

    assert torch.ops.aten.addmm in flop_counter.flop_registry
    assert callable(flop_counter.sdpa_flop_count)
    assert callable(flop_counter.sdpa_backward_flop_count)
    assert hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward")


def test_names_of_the_compilers_switches() -> None:
    import torch._functorch.config as functorch_config
    from torch._inductor import decomposition, graph, lowering
    from torch._inductor.compiler_bisector import CompilerBisector
    from torch._inductor.pattern_matcher import Match, PatternEntry, PatternMatcherPass
    from torch._inductor.virtualized import V
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver
    from torch.fx.passes.utils.fuser_utils import fuse_as_graphmodule

    asked = inspect.signature(CompilerBisector.disable_subsystem).parameters
    assert list(asked) == ["backend", "subsystem", "debug_info"]
    for name in ("get_backend", "get_subsystem", "get_config_change"):
        assert isinstance(vars(CompilerBisector)[name], classmethod)
    assert isinstance(CompilerBisector.bisection_enabled, bool)
    assert list(inspect.signature(GraphTransformObserver.apply_graph_pass).parameters) == ["self", "pass_fn"]
    assert list(inspect.signature(GraphTransformObserver.apply_gm_pass).parameters) == ["self", "pass_fn"]
    assert {"gm", "subsystem"} <= set(vars(GraphTransformObserver(torch.fx.symbolic_trace(lambda x: x), "name", "x")))
    assert list(inspect.signature(PatternMatcherPass.apply).parameters) == ["self", "gm"]
    assert "patterns" in vars(PatternMatcherPass()) and "extra_check" in PatternEntry.__dataclass_fields__
    assert "nodes" in Match.__annotations__
    assert "current_node" in inspect.getsource(graph.GraphLowering.set_current_node) and hasattr(V, "graph")
    assert graph.make_fallback is lowering.make_fallback
    assert "override_decomp" in inspect.signature(lowering.make_fallback).parameters
    assert {"lowerings", "fallbacks", "needs_realized_inputs"} <= set(vars(lowering))
    assert torch.ops.aten.gelu.default in decomposition.decompositions
    assert callable(decomposition.fast_random_decomps.cache_clear)
    assert callable(torch.fx.traceback.get_current_meta)
    assert "always_return_tuple" in inspect.signature(fuse_as_graphmodule).parameters
    assert isinstance(functorch_config.cse, bool)
    assert hasattr(torch._guards.TracingContext(None), "output_strides")
    for name in ("suppress_errors", "inline_inbuilt_nn_modules", "automatic_dynamic_shapes"):
        assert isinstance(getattr(torch._dynamo.config, name), bool)


def test_configuration_names() -> None:
    import torch._dynamo.config as dynamo_config
    import torch._inductor.config as inductor_config

    for config, option in ((dynamo_config, "allow_rnn"), (inductor_config, "freezing")):
        assert config.get_config_copy()[option] in (True, False)
        assert config.get_type(option) is bool
        with config.patch({option: True}):
            assert getattr(config, option) is True


def test_configuration_modules_have_a_file_and_read_the_environment_when_imported() -> None:
    """What :mod:`stages.torch_internals.compiler_options` executes a second time for the defaults proper."""
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    for config in (dynamo_config, functorch_config, inductor_config):
        assert config.__file__ is not None and "os.environ" in inspect.getsource(config)
        assert "install_config_module(sys.modules[__name__])" in inspect.getsource(config)


def test_names_by_which_compilations_are_noticed() -> None:
    from torch._dynamo.output_graph import OutputGraph
    from torch._functorch import aot_autograd
    from torch._inductor import compile_fx, output_code

    assert "self.compiler_fn" in inspect.getsource(OutputGraph._call_user_compiler)
    assert "self._call_user_compiler(" in inspect.getsource(OutputGraph.call_user_compiler)
    assert "prepare_aot_module_simplified(" in inspect.getsource(aot_autograd.aot_module_simplified)
    assert "create_aot_state(" in inspect.getsource(aot_autograd.aot_function)
    assert "compiled_graph.post_compile(" in inspect.getsource(compile_fx._compile_fx_inner)
    assert all("post_compile" in vars(kind) for kind in (output_code.CompiledFxGraph, output_code.CompiledAOTI))


def test_registered_names_are_those_of_the_registry() -> None:
    """Read from torch's sources, without importing it."""
    from inductor_debug.stages.torch_internals.backends import registered_backends
    from inductor_debug.stages.torch_internals.registered_names import registered_names

    assert list(registered_names()) == registered_backends()


def test_graph_cache_names() -> None:
    from torch._dynamo.utils import counters
    from torch._inductor import codecache, config
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    assert callable(codecache.FxGraphCache.prepare_key) and callable(codecache.FxGraphCache._lookup_graph)
    lookup = inspect.getsource(codecache.FxGraphCache.load_with_key)
    assert "compiled_graph, cache_info = FxGraphCache._lookup_graph(" in lookup
    assert all(f'"fxgraph_cache_{what}"' in inspect.getsource(codecache) for what in ("hit", "miss", "bypass"))
    assert isinstance(counters["inductor"], dict) and isinstance(config.fx_graph_cache, bool)
    assert config._pre_fusion_custom_pass is None and config._post_fusion_custom_pass is None
    assert isinstance(codecache._HEADER_DIR, str) and isinstance(cache_dir(), str)


def test_device_clock_names() -> None:
    assert callable(torch.cuda._sleep)
