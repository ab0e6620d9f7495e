"""Long reductions over few rows in two stages, so that the whole device works on them.

A reduction of ``N`` columns becomes one of ``N / S`` columns for each of ``S`` parts of every row and one of ``S``: the
graph is rewritten, and planned as it is then. Each part is summed in a fixed order: results are the same in every run.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from thunderfx.executors.triton.nodes import (
    Node,
    args_of,
    reduced_dims,
    shape,
    short_name,
    split_of,
    value_of,
)
from thunderfx.executors.triton.sizes import product

#: Blocks that keep a large device busy, and columns below which a reduction is not worth a second kernel.
BUSY, SHORT = 512, 1024
#: Rows that one block takes where they lie next to each other in memory.
_ROWS_OF_BLOCK = 64


def split_long_reductions(graph: torch.fx.Graph) -> None:
    """Rewrite the sums and extremes of ``graph`` that have few rows and many columns."""
    for node in list(graph.nodes):
        if short_name(node) not in ("sum", "amax", "amin", "mean") or not isinstance(
            node.meta.get("val"), torch.Tensor
        ):
            continue
        rows, columns = split_of(node)
        if isinstance(rows, int) and isinstance(columns, int) and value_of(node).is_contiguous():
            parts = parts_of(rows, columns, _is_along_rows(node))
            if parts > 1:
                _rewrite(graph, node, parts)


def parts_of(rows: int, columns: int, is_along_rows: bool) -> int:
    """In how many parts each row is reduced; 1 for a reduction in one stage."""
    blocks = -(-rows // _ROWS_OF_BLOCK) if is_along_rows else rows
    if columns < SHORT or blocks >= BUSY // 4 or (not is_along_rows and columns <= 4 * SHORT and rows > 1):
        return 1
    wanted = min(BUSY // blocks, columns // 32)
    return max((part for part in range(1, wanted + 1) if columns % part == 0), default=1)


def _is_along_rows(node: Node) -> bool:
    """Whether neighbouring rows are neighbours in memory, as in a sum over the first dimension."""
    operand: Any = args_of(node)[0]
    kept, _ = reduced_dims(node)
    return bool(kept) and kept[-1] == len(shape(operand)) - 1


def _rewrite(graph: torch.fx.Graph, node: Node, parts: int) -> None:
    operand: Any = args_of(node)[0]
    sizes = shape(operand)
    kept, gone = reduced_dims(node)
    rows, columns = product(sizes[d] for d in kept), product(sizes[d] for d in gone)
    aten = torch.ops.aten
    with graph.inserting_before(node):

        def call(target: Any, *args: Any, **kwargs: Any) -> Node:
            made = graph.call_function(target, args, kwargs)
            real = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in args]
            with getattr(value_of(operand), "fake_mode", contextlib.nullcontext()):
                made.meta["val"] = target(*real, **kwargs)
            return made

        moved = call(aten.permute.default, operand, [*kept, *gone])
        apart = call(aten.reshape.default, moved, [rows, parts, columns // parts])
        name = short_name(node)
        if name in ("amax", "amin"):
            target = getattr(aten, name).default
            first = call(target, apart, [2])
            second = call(target, first, [1])
        else:
            kind = value_of(node).dtype
            first = call(aten.sum.dim_IntList, apart, [2], dtype=torch.float32 if kind.itemsize == 2 else kind)
            second = call(aten.sum.dim_IntList, first, [1], dtype=kind)
            second = call(aten.div.Tensor, second, columns) if name == "mean" else second
        result = call(aten.reshape.default, second, list(shape(node)))
    node.replace_all_uses_with(result)
    graph.erase_node(node)
