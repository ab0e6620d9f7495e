"""Calling a subgraph's programs without AOTAutograd's general wrapper.

AOTAutograd puts a runtime wrapper around every program, and an ``autograd.Function`` around every pair of them, that
provide for aliased outputs, mutated inputs, subclasses, tokens and more. Where a subgraph has none of these, what is
left to do is here. The first call and the first backward go through AOTAutograd, which then compiles the backward; so
does whatever is unusual about a call or a backward: functorch, forward-mode AD, compiled autograd, double backward.

On a torch that this was not checked on, every call goes through AOTAutograd's wrapper.

Private names of torch used here (checked on 2.13): ``TracingContext.fw_metadata`` (``ViewAndMutationMeta``, with
``OutputType``, ``PlainTensorMeta`` and ``MemoryFormatMeta``); the attributes ``metadata``, ``symints``,
``opaque_objects``, ``_tensors_no_vc_check`` and ``boxed_grads_call`` of the ``CompiledFunction`` that
torch/_functorch/_aot_autograd/runtime_wrappers.py makes for each pair of programs, and ``AOTDispatchAutograd`` there;
``torch._C._FunctionBase.apply``; the thread-local ``"context"`` of torch/autograd/graph.py;
``compiled_autograd.in_compiled_autograd_region``; ``forward_ad._current_level``; ``set_code_exec_strategy`` of
``torch._C._dynamo.eval_frame``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

Program = Callable[[list[Any]], Any]
#: Versions of torch whose wrapper was read and is done without.
CHECKED = ("2.13.",)
IS_CHECKED = torch.__version__.startswith(CHECKED)
if IS_CHECKED:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    from torch._dynamo import compiled_autograd as state
    from torch._functorch._aot_autograd.runtime_wrappers import AOTDispatchAutograd
    from torch._functorch._aot_autograd.schemas import OutputType, PlainTensorMeta
    from torch._guards import TracingContext

    _FRESH = (OutputType.non_alias, OutputType.unsafe_view_alias, OutputType.custom_function_view)


class Programs:
    """What AOTAutograd had compiled for one Dynamo graph, as it comes to be known."""

    def __init__(self) -> None:
        self.forward: Program | None = None
        self.backward: Program | None = None
        self.gradients: Sequence[Any] = ()  #: outputs of the backward graph; ``None`` for no gradient
        self.differentiated = False
        self.metadata: Any = None  #: torch's ``ViewAndMutationMeta``, where it asks for nothing but to run the programs
        self._autocast = torch._C._is_any_autocast_enabled()

    def set_forward(self, program: Program, inputs: Sequence[Any], differentiated: bool) -> None:
        """To be called while AOTAutograd has the forward compiled."""
        self.forward, self.differentiated = self._without_autocast(program), differentiated
        metadata = getattr(TracingContext.try_get(), "fw_metadata", None) if IS_CHECKED else None
        if metadata is not None and len(metadata.input_info) == len(inputs) and _is_plain(metadata):
            self.metadata = metadata

    def set_backward(self, program: Program, graph: torch.fx.GraphModule) -> None:
        """To be called while AOTAutograd has the backward compiled."""
        self.backward = self._without_autocast(program)
        self.gradients = graph.graph.output_node().args[0]  # type: ignore[assignment]

    def pair(self) -> tuple[Program, Program]:
        assert self.forward is not None and self.backward is not None
        return self.forward, self.backward

    def _without_autocast(self, program: Program) -> Program:
        """Casts are part of the program; those of an autocast that is on would come on top."""
        if not self._autocast:
            return program

        def run(args: list[Any]) -> Any:
            with torch._C._DisableAutocast():
                return program(args)

        return run


def _is_plain(metadata: Any) -> bool:
    """The wrapper has nothing to do but to run the programs and to save tensors between them."""
    kinds = (metadata.subclass_inp_meta, metadata.subclass_fw_graph_out_meta, metadata.subclass_tangent_meta)
    return (
        torch._C._autograd._top_saved_tensors_default_hooks(True) is None
        and not metadata.mutated_inp_runtime_indices
        and not metadata.num_outputs_aliased
        and not metadata.num_intermediate_bases
        and not metadata.dynamic_outputs
        and not metadata.dynamic_saved_tensors_idxs
        and not metadata.num_symints_saved_for_bw
        and not metadata.num_opaque_objects_saved_for_bw
        and not metadata.tokens
        and not metadata.num_backward_tokens
        and not metadata.act_input_indices
        and not metadata.num_graphsafe_rng_states
        and not metadata.is_rng_op_functionalized
        and metadata.grad_enabled_mutation is None
        and not metadata.indices_of_inputs_that_requires_grad_with_mutations_in_bw
        and all(isinstance(kind, PlainTensorMeta) for kinds_of in kinds for kind in kinds_of)
    )


def direct(general: Callable[..., Any], programs: Programs) -> Callable[..., Any]:
    """``general``, which is what AOTAutograd returned, or a quicker callable that does the same."""
    if programs.metadata is None:
        return general
    return _differentiated(general, programs) if programs.differentiated else _inference(general, programs)


def _inference(general: Callable[..., Any], programs: Programs) -> Callable[..., Any]:
    """The forward program alone, without grad mode."""
    forward = programs.forward
    changed = programs.metadata.mutated_graph_handled_indices_seen_by_autograd
    interpreters = torch._C._functorch.peek_interpreter_stack
    is_grad_enabled, set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
    assert forward is not None

    def run(*args: Any) -> Any:
        if interpreters() is not None or forward_ad._current_level >= 0 or state.in_compiled_autograd_region:
            return general(*args)
        if changed:
            torch.autograd.graph.increment_version([args[index] for index in changed])
        if not is_grad_enabled():
            return forward(list(args))
        set_grad_enabled(False)
        try:
            return forward(list(args))
        finally:
            set_grad_enabled(True)

    return run


def _differentiated(general: Callable[..., Any], programs: Programs) -> Callable[..., Any]:
    """Both programs in an ``autograd.Function``, once AOTAutograd has had both compiled."""
    infos = programs.metadata.input_info
    changed = programs.metadata.mutated_graph_handled_indices_seen_by_autograd
    detached: list[int] = []
    interpreters = torch._C._functorch.peek_interpreter_stack
    is_grad_enabled = torch.is_grad_enabled
    function: Any = None
    apply: Callable[..., Any] | None = None

    def run(*args: Any) -> Any:
        if (
            apply is None
            or not is_grad_enabled()
            or interpreters() is not None
            or forward_ad._current_level >= 0
            or state.in_compiled_autograd_region
        ):
            return otherwise(*args)
        if changed:
            torch.autograd.graph.increment_version([args[index] for index in changed])
        if detached:
            args = tuple(arg.detach() if index in detached else arg for index, arg in enumerate(args))
        return apply(*args)

    def otherwise(*args: Any) -> Any:
        nonlocal function, apply
        outputs = general(*args)
        if function is None:
            function = _autograd_function(outputs, programs.metadata)
        if function is not None and apply is None and programs.backward is not None:
            # As in torch: a gradient that is never there must not connect the outputs to what made the input.
            detached.extend(
                index
                for index, gradient in enumerate(programs.gradients)
                if gradient is None and infos[index].requires_grad and not infos[index].is_leaf
            )
            apply = _function(function, programs).apply
        return outputs

    return run


def _autograd_function(outputs: Sequence[Any], metadata: Any) -> Any:
    """The class that AOTAutograd made, found behind an output that it made; ``None`` where there is none."""
    for output in outputs:
        function = getattr(type(getattr(output, "grad_fn", None)), "_forward_cls", None)
        if getattr(function, "metadata", None) is metadata:
            return function
    return None


def _function(general: Any, programs: Programs) -> Any:
    """A subclass of AOTAutograd's function, so that compiled autograd knows it, with the usual cases done quickly."""
    metadata = programs.metadata
    program, backward_program = programs.pair()
    count = metadata.num_forward_returns
    checked = metadata.tensors_saved_for_backwards_with_vc_check_slice
    unchecked = metadata.tensors_saved_for_backwards_no_vc_check_slice
    any_unchecked = bool(metadata.num_tensors_saved_with_no_vc_check)
    unsafe_views = metadata.unsafe_view_out_indices
    are_tensors = [issubclass(info.raw_type, torch.Tensor) for info in metadata.output_info]
    constant = [
        index for index, info in enumerate(metadata.output_info) if are_tensors[index] and not info.requires_grad
    ]
    differentiable = [
        index
        for index, info in enumerate(metadata.output_info)
        if are_tensors[index] and info.output_type in _FRESH and info.requires_grad_for_backward
    ]
    tangents = []
    for index, kind in zip(differentiable, metadata.subclass_tangent_meta, strict=True):
        size, stride = kind.memory_format.size, kind.memory_format.stride  # None where a memory format says it all
        is_contiguous = size is not None and stride == torch.empty(size, device="meta").stride()
        tangents.append((index, stride, is_contiguous, kind))
    is_boxed = getattr(general, "boxed_grads_call", False)
    may_be_deterministic = metadata.deterministic is not False
    is_grad_enabled = torch.is_grad_enabled
    are_deterministic = torch.are_deterministic_algorithms_enabled
    interpreters = torch._C._functorch.peek_interpreter_stack
    in_thread, of_thread = torch._C._is_key_in_tls, torch._C._get_obj_in_tls
    tensor = torch.Tensor

    class CompiledFunction(general):  # type: ignore[misc]
        apply = torch._C._FunctionBase.__dict__["apply"]

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            outputs = program(list(args))
            ctx.save_for_backward(*[saved.detach() if saved._is_view() else saved for saved in outputs[checked]])
            if any_unchecked:
                ctx._tensors_no_vc_check = [
                    saved.detach() if saved._is_view() else saved for saved in outputs[unchecked]
                ]
            returned = outputs[:count]
            if unsafe_views:
                returned = list(returned)
                for index in unsafe_views:
                    returned[index] = torch.ops.aten._unsafe_view(returned[index], returned[index].shape)
            if constant:
                ctx.mark_non_differentiable(*[returned[index] for index in constant])
                ctx._materialize_non_diff_grads = False
            return tuple(returned)

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            if is_grad_enabled() or interpreters() is not None or (are_deterministic() and not may_be_deterministic):
                return general.backward(ctx, *given)
            grads = given[0] if is_boxed else list(given)
            args = [*ctx.saved_tensors, *ctx._tensors_no_vc_check] if any_unchecked else [*ctx.saved_tensors]
            for index, stride, is_contiguous, kind in tangents:
                grad = grads[index]
                if type(grad) is not tensor:
                    return general.backward(ctx, *given)
                if grad.stride() == stride:
                    pass
                elif is_contiguous:
                    grad = grad.contiguous()
                else:
                    grad = AOTDispatchAutograd.process_runtime_tangent(grad, kind)[0]
                args.append(grad)
            grads.clear()
            grad = None
            ctx.maybe_clear_saved_tensors()
            context = of_thread("context") if in_thread("context") else None
            return tuple(backward_program(args) if context is None else context.run(backward_program, args))

    node: Any = CompiledFunction._backward_cls
    node.symints, node.opaque_objects, node._tensors_no_vc_check = (), (), ()
    skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    set_code_exec_strategy(CompiledFunction.backward.__code__, skip)
    return CompiledFunction
