"""Model mode: execute the user's file once and take the model, its inputs and its loss out of it."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from thunderfx_cli.errors import UsageError, UserCodeError
from thunderfx_cli.loading.capture import original_of
from thunderfx_cli.loading.inputs import (
    GRAMMAR,
    as_arguments,
    example_option,
    forward_signature,
    merge_specs,
    move_to,
    parse_input,
    required_names,
)
from thunderfx_cli.loading.mode import INPUT_NAMES, MODEL_NAMES
from thunderfx_cli.loading.source import parse_source, read_source, shown_path
from thunderfx_cli.loading.target import Target
from thunderfx_cli.loading.user_errors import user_code

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class LoadedModel:
    """What there is to compile and how to call it: ``callable(*args, **kwargs)``, then ``loss(output)`` if any."""

    callable: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Callable[[Any], torch.Tensor] | None
    name: str


def load_model(
    target: Target, *, input_specs: Sequence[str] = (), device: torch.device | str = "cpu", seed: int = 0
) -> LoadedModel:
    """Load the model that ``target`` names, on ``device``.

    The seed is set before the file runs and again before the inputs are made, so that inputs do not depend on how
    many parameters the model draws. ``sys.path`` and ``sys.modules`` keep what the file needs for later imports.
    Raises :class:`UsageError` for a bad target or input, :class:`UserCodeError` for what the user's code raises.
    """
    import torch

    specs = [parse_input(text) for text in input_specs]
    torch.manual_seed(seed)
    module = _execute(target)
    file = Path(getattr(module, "__file__", None) or str(target.path or target.module))
    attr, found = _find(module, target, file)
    with user_code([file]):
        fn = _resolve(found, attr, file)
        if isinstance(fn, torch.nn.Module):
            fn = fn.to(device)
    torch.manual_seed(seed)
    signature = forward_signature(fn)
    given = _given_inputs(module, file)
    if given is None and not specs and required_names(signature):
        raise UsageError(
            f"no inputs for {target}: the file defines neither {' nor '.join(INPUT_NAMES)}, and there is no --input",
            hint=f"Add {example_option(signature)}, or a function inputs() to the file. {GRAMMAR}",
        )
    args, kwargs = given or ((), {})
    if specs:
        args, kwargs = merge_specs(specs, args, kwargs, signature)
    with user_code([file]):
        args, kwargs = move_to(args, device), move_to(kwargs, device)
    name = (target.path.stem if target.path else str(target.module)) + (f":{attr}" if attr not in MODEL_NAMES else "")
    return LoadedModel(fn, args, kwargs, _loss(module, file), name)


def _execute(target: Target) -> types.ModuleType:
    if target.path is None:
        return _import(str(target.module))
    path = target.path.absolute()
    parse_source(read_source(path), str(path))
    _put_first_on_path(str(path.parent))
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:  # not a .py suffix
        spec = importlib.util.spec_from_loader(name, importlib.machinery.SourceFileLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with user_code([path, path.parent]):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _module_name(path: Path) -> str:
    """The stem, unless a module of that name is loaded or would be hidden from the file's own imports."""
    stem = path.stem if path.stem.isidentifier() else "model_file"
    loaded = sys.modules.get(stem)
    if stem in sys.stdlib_module_names or (loaded is not None and getattr(loaded, "__file__", None) != str(path)):
        return f"{stem}_model_file"
    return stem


def _import(name: str) -> types.ModuleType:
    _put_first_on_path(os.getcwd())
    try:
        with user_code():
            return importlib.import_module(name)
    except UserCodeError as exc:
        missing = exc.__cause__
        if isinstance(missing, ModuleNotFoundError) and missing.name and f"{name}.".startswith(f"{missing.name}."):
            hint = "Modules are looked up from the working directory and the installed packages."
            raise UsageError(f"no module {missing.name!r}", hint=hint) from missing
        raise


def _put_first_on_path(folder: str) -> None:
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)


def _find(module: types.ModuleType, target: Target, file: Path) -> tuple[str, Any]:
    """The attribute's name and value; dots in ``attr`` reach into classes and submodules."""
    for attr in [target.attr] if target.attr else MODEL_NAMES:
        value: Any = module
        try:
            with user_code([file]):
                for part in attr.split("."):
                    value = getattr(value, part)
        except UserCodeError as exc:
            if isinstance(exc.__cause__, AttributeError):
                continue
            raise
        return attr, value
    wanted = target.attr or " or ".join(MODEL_NAMES)
    names = _offered(module)
    hint = f"The file defines {', '.join(names)}." if names else "The file defines no class and no function."
    if names and not target.attr:
        hint += f" Try {shown_path(file)}:{names[0]}"
    raise UsageError(f"{shown_path(file)} has no {wanted}", hint=hint)


def _offered(module: types.ModuleType) -> list[str]:
    """Callables that the module itself defines, in source order."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and (getattr(value, "__module__", None) == module.__name__ or not isinstance(value, (type, types.FunctionType)))
        and not isinstance(value, types.BuiltinFunctionType)
    ]


def _resolve(found: Any, attr: str, file: Path) -> Callable[..., Any]:
    """A module, an instance of a class, a factory's result, or the function itself if it has parameters."""
    import torch

    if isinstance(found, torch.nn.Module):
        return _uncompiled(found)
    place = f"{shown_path(file)}:{attr}"
    if isinstance(found, type):
        required = _required_of(found)
        if required:
            raise UserCodeError(
                f"{place} is a class that needs {', '.join(required)}",
                where=_defined_at(found),
                hint=f"Write a factory, def model(): return {found.__name__}(...), and give it as the target.",
            )
        made = found()
    elif inspect.isfunction(found) and _is_factory(found):
        made = found()
        if isinstance(made, type):
            made = made()
    else:
        made = found
    if not callable(made):
        verb = "returned" if callable(found) else "is"
        call = "()" if callable(found) else ""
        raise UserCodeError(
            f"{place}{call} {verb} a {type(made).__name__}, which cannot be called",
            where=_defined_at(found),
            hint="A model is an nn.Module, its class, a factory without parameters, or a function with parameters.",
        )
    return _uncompiled(made)


def _uncompiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What the file wrapped with ``torch.compile`` or ``thunderfx``: we compile the original, and eager stays eager."""
    original = original_of(fn)
    return fn if original is None else _uncompiled(original)


def _required_of(found: Callable[..., Any]) -> list[str]:
    try:
        return required_names(inspect.signature(found))
    except (TypeError, ValueError):  # a class whose signature Python does not know: calling it tells
        return []


def _is_factory(function: types.FunctionType) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in parameters)


def _defined_at(found: Any) -> str:
    code = getattr(found, "__code__", None)
    return f"{shown_path(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""


def _given_inputs(module: types.ModuleType, file: Path) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """``inputs`` or ``example_inputs`` of the file, called if it is a function; ``None`` if there is neither."""
    for name in INPUT_NAMES:
        value = getattr(module, name, None)
        if value is None:
            continue
        if inspect.isfunction(value):
            if _required_of(value):
                raise UserCodeError(
                    f"{name} must not need arguments; it has {', '.join(_required_of(value))}", where=_defined_at(value)
                )
            with user_code([file]):
                value = value()
        return as_arguments(value)
    return None


def _loss(module: types.ModuleType, file: Path) -> Callable[[Any], torch.Tensor] | None:
    """The file's ``loss`` if it can be called with the output alone; a warning otherwise."""
    loss: Any = getattr(module, "loss", None)
    if loss is None:
        return None
    if callable(loss) and _accepts_one(forward_signature(loss)):
        return cast("Callable[[Any], torch.Tensor]", loss)
    warnings.warn(f"{shown_path(file)}: loss is not a function of the output alone; it is not used", stacklevel=2)
    return None


def _accepts_one(signature: inspect.Signature | None) -> bool:
    """Whether one positional argument is enough; an unknown signature (a builtin such as ``torch.sum``) passes."""
    try:
        if signature is not None:
            signature.bind(None)
    except TypeError:
        return False
    return True
