"""Instances of modules as the statements that make them anew."""

import ast
import inspect
from collections.abc import Mapping
from typing import Any

import torch

from inductor_debug.models.torch_private import own_parts
from inductor_debug.stages.minify.modules.inline import MODULE, Inliner, is_torchs
from inductor_debug.stages.repro import NotReproducible

_OWN = set(vars(MODULE()))
"""What each module has of torch's own."""
_LISTS, _DICTS = (torch.nn.Sequential, torch.nn.ModuleList), (torch.nn.ModuleDict,)


class Builder:
    """Writes ``def model()``.

    Args:
        inliner: has what the modules' methods need.
        stored: whether parameters and buffers have their own numbers, by a call of ``filled``.

    Attributes:
        paths: source of each module and parameter that was made last, by its address.
    """

    def __init__(self, inliner: Inliner, *, stored: bool) -> None:
        self._inliner, self._stored = inliner, stored
        self._lines: list[str] = []
        self.paths: dict[int, str] = {}

    def function(self, module: MODULE) -> ast.stmt:
        """The function that makes a module.

        Raises:
            NotReproducible: an attribute that the methods read can't be written.
        """
        self._lines, self.paths = [], {}
        made = self._made(module, "model")
        inner, self._lines = self._lines, []
        for name, source in self._inliner.resets.items():
            self._lines += [f"global {name}", f"{name} = {source}"]
        modes = {item.training for item in module.modules()}
        end = "model" if module.training else "model.eval()"
        if len(modes) > 1:
            inner += [f"{path}.training = {item.training}" for path, item in self._each(module)]
            end = "model"
        device = next((item.device for item in [*module.parameters(), *module.buffers()]), torch.device("cpu"))
        end += f".to({str(device)!r})" if device.type != "cpu" else ""
        self._lines += [
            "torch.manual_seed(0)",
            f"model = {made}",
            *inner,
            f"return filled({end})" if self._stored else f"return {end}",
        ]
        return ast.parse("def model():\n" + "\n".join(f"    {line}" for line in self._lines)).body[0]

    def _each(self, module: MODULE) -> list[tuple[str, MODULE]]:
        return [(self.paths[id(item)], item) for item in module.modules() if id(item) in self.paths]

    def _made(self, module: MODULE, path: str) -> str:
        """An expression that makes a module; statements that complete it are added."""
        if id(module) in self.paths:
            return self.paths[id(module)]
        self.paths[id(module)] = path
        cls, children = type(module), dict(module.named_children())
        room = next(base for base in cls.__mro__ if is_torchs(base))
        name = self._inliner.class_name(cls)
        if issubclass(room, _LISTS + _DICTS) and set(map(str, children)) == set(own_parts(module).modules):
            return self._container(module, path, name, isinstance(module, _DICTS))
        if room is MODULE:
            self._attributes(module, path)
            return f"{name}()"
        given = _arguments(module, room)
        if given is None:
            raise NotReproducible(f"a {cls.__qualname__} can't be made anew from its attributes")
        tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        dtypes = {item.dtype for item in tensors if item.is_floating_point()}
        if cls is not room:
            self._plain(module, path, inspect.signature(room).parameters)
        self._same(module, path)
        wide = dtypes <= {torch.float32} or len(dtypes) > 1
        return f"{name}({given})" + ("" if wide else f".to({next(iter(dtypes))})")

    def _container(self, module: MODULE, path: str, name: str, keyed: bool) -> str:
        made = {key: self._made(child, f"{path}[{key!r}]" if keyed else f"{path}[{int(key)}]")
                for key, child in own_parts(module).modules.items() if child is not None}  # fmt: skip
        if not is_torchs(type(module)):
            self._attributes(module, path, children=False)
        if keyed:
            return f"{name}({{{', '.join(f'{key!r}: {source}' for key, source in made.items())}}})"
        items = ", ".join(made.values())
        return f"{name}([{items}])" if isinstance(module, torch.nn.ModuleList) else f"{name}({items})"

    def _same(self, module: MODULE, path: str) -> None:
        """Parameters that other modules have too."""
        for key, value in own_parts(module).parameters.items():
            if value is None:
                continue
            known = self.paths.setdefault(id(value), f"{path}.{key}")
            if known != f"{path}.{key}":
                self._lines.append(f"{path}.{key} = {known}")

    def _attributes(self, module: MODULE, path: str, *, children: bool = True) -> None:
        wanted, values = self._inliner.attributes, self._inliner.values
        self._plain(module, path, {})
        for key, value in own_parts(module).parameters.items():
            if key not in wanted:
                continue
            source = self.paths.get(id(value)) or "None"
            if value is not None and id(value) not in self.paths:
                self.paths[id(value)] = f"{path}.{key}"
                source = f"torch.nn.Parameter({values.source(value, f'{path}.{key}')})"
            self._lines.append(f"{path}.{key} = {source}")
        for key, buffer in own_parts(module).buffers.items():
            if key in wanted:
                kept = "" if key not in own_parts(module).passing else ", persistent=False"
                source = values.source(buffer, f"{path}.{key}")
                self._lines.append(f"{path}.register_buffer({key!r}, {source}{kept})")
        for key, child in own_parts(module).modules.items() if children else ():
            if child is None:
                self._lines.append(f"{path}.{key} = None")
            elif key.isidentifier():
                if key in wanted:
                    self._child(path, key, child)
            else:
                raise NotReproducible(f"{type(module).__qualname__} has a child of the name {key!r}")

    def _child(self, path: str, key: str, child: MODULE) -> None:
        outer, self._lines = self._lines, []
        made = self._made(child, f"{path}.{key}")
        self._lines = [*outer, f"{path}.{key} = {made}", *self._lines]

    def _plain(self, module: MODULE, path: str, given: Mapping[str, Any]) -> None:
        """Attributes that are no parameters, buffers or children."""
        for key, value in vars(module).items():
            if key in _OWN or key in given or not key.isidentifier() or key not in self._inliner.attributes:
                continue
            if type(value) in (list, tuple) and value and all(isinstance(item, MODULE) for item in value):
                outer, self._lines = self._lines, []
                made = ", ".join(self._made(item, f"{path}.{key}[{place}]") for place, item in enumerate(value))
                made = f"[{made}]" if isinstance(value, list) else f"({made},)"
                self._lines = [*outer, f"{path}.{key} = {made}", *self._lines]
            elif isinstance(value, MODULE):
                self._child(path, key, value)
            else:
                self._lines.append(f"{path}.{key} = {self._inliner.values.source(value, f'{path}.{key}')}")


def _arguments(module: MODULE, room: type) -> str | None:
    """Arguments of a constructor of torch's that make a module like this one; None where its attributes don't tell."""
    given: dict[str, str] = {}
    plain: list[str] = []
    for key, parameter in inspect.signature(room).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or key in ("device", "dtype"):
            continue
        value = getattr(module, key, parameter.default)
        if key == "bias":
            value = getattr(module, "bias", getattr(module, "in_proj_bias", None)) is not None
        if value is parameter.empty or isinstance(value, torch.Tensor):
            return None
        if isinstance(value, tuple) and len(set(value)) == 1 and len(value) > 1 and "Conv" in room.__name__:
            value = value[0]
        if parameter.default is not parameter.empty and value == parameter.default:
            continue
        if parameter.default is parameter.empty and not given:
            plain.append(repr(value))
        else:
            given[key] = repr(value)
    text = ", ".join([*plain, *(f"{key}={value}" for key, value in given.items())])
    name = f"torch.nn.{room.__name__}"
    try:
        with torch.device("meta"):
            made = eval(f"{name}({text})", {"torch": torch})
    except Exception:  # noqa: BLE001 - its attributes are no arguments
        return None
    same = {key: value.shape for key, value in made.state_dict().items()}
    return text if same == {key: value.shape for key, value in module.state_dict().items()} else None
