"""Generated code taken apart: the kernels that a generated module defines."""

import ast
import re
import textwrap
from dataclasses import dataclass

from inductor_debug.stages.file_names import file_name

KINDS = {"cpp_pybinding": "cpp", "cpp": "cpp", "triton": "triton"}
SUFFIXES = {"cpp": "cpp", "triton": "py"}


@dataclass(frozen=True)
class Kernel:
    """One kernel that a generated module defines.

    Attributes:
        name: as the module calls it.
        kind: cpp, triton, or the name of the ``AsyncCompile`` method that builds it.
        source: its code.
    """

    name: str
    kind: str
    source: str

    @property
    def body(self) -> str:
        """The code that a compiler is given: of C++ without what precedes it, which is another where it is compiled."""
        return self.source.strip() if self.kind == "triton" else self.source.partition('extern "C"')[2].strip()

    @property
    def file(self) -> str:
        """Its file's name."""
        return file_name(self.name, f".{SUFFIXES.get(self.kind, 'txt')}")


_CPP_DEFINITION = re.compile(r'^extern "C"\s+void\s+(?P<name>\w+)\([^;{}]*\)\s*\{.*?^\}', re.DOTALL | re.MULTILINE)

_TRITON_CALLER = re.compile(
    r"^static [^;{}]*?\bcall_(?P<name>\w+)\([^;{}]*\)\s*\{\s*/\*\n(?P<body>.*?)\*/", re.DOTALL | re.MULTILINE
)
_TRITON_SOURCE = re.compile(r"async_compile\.triton\(.*?\'\'\'(?P<source>.*)\'\'\'", re.DOTALL)


def split_cpp_kernels(source_code: str) -> list[Kernel]:
    """The kernels of C++ that AOTInductor generated: functions, and Triton's in the comments of their callers."""
    kernels = {found["name"]: Kernel(found["name"], "cpp", found[0]) for found in _CPP_DEFINITION.finditer(source_code)}
    for found in _TRITON_CALLER.finditer(source_code):
        body = textwrap.dedent(found["body"])
        source = _TRITON_SOURCE.search(body)
        kernels[found["name"]] = Kernel(found["name"], "triton", source["source"] if source else body)
    return list(kernels.values())


def split_kernels(source_code: str) -> list[Kernel]:
    """The kernels of a generated module, in order: each ``name = async_compile.KIND(…, '''source''', …)``.

    With TorchInductor's C++ wrapper those of Triton stand in the text of another module, in the docstring, and those in
    C++ in the wrapper's own source.

    Raises:
        SyntaxError: the module is not Python.
    """
    kernels: dict[str, Kernel] = {}
    for statement in ast.parse(source_code).body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id="async_compile"), attr=kind), args=args),
            ):
                texts = [item.value for item in args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
                kernels[name] = Kernel(name, KINDS.get(kind, kind), max(texts, key=len, default=""))
            case ast.Expr(value=ast.Constant(value=str(text))) if "async_compile" in text:
                kernels |= {kernel.name: kernel for kernel in split_kernels(text.partition("\n\n")[2])}
            case ast.Assign(value=ast.Constant(value=str(text))):
                for found in _CPP_DEFINITION.finditer(text):
                    kernels.setdefault(found["name"], Kernel(found["name"], "cpp", found[0]))
            case _:
                pass
    return list(kernels.values())
