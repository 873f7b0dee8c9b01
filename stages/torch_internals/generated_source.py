"""What TorchInductor generates for the program of a script, told while it is compiled: also where that then fails.

Relies on ``torch._inductor.graph.GraphLowering.save_output_code``, a static method that is given each module's source
before it is built.
"""

import ast

from inductor_debug.stages.torch_internals.generated_kernels import split_kernels

SCRIPT = """
import runpy
import sys

import torch
from torch._inductor.graph import GraphLowering

GraphLowering.save_output_code = staticmethod(lambda code, *rest, **more: print("GENERATED " + repr(code), flush=True))
names = runpy.run_path(sys.argv[1])
try:
    with torch.no_grad():
        names["compiled"]()(*names["inputs"]())
except Exception as error:  # a compiler's messages may be longer than all that is kept of what is printed
    print(type(error).__name__)
"""
"""A program: with a script as its argument it prints what is generated for the script's ``compiled()(*inputs())``."""

_LINE = "GENERATED "


def kernels_printed(output: str) -> str:
    """The kernels' sources of what :data:`SCRIPT` printed, one after the other; empty where nothing was generated."""
    found = []
    for line in output.splitlines():
        if line.startswith(_LINE):
            source = str(ast.literal_eval(line.removeprefix(_LINE)))
            kernels = split_kernels(source)
            found += [f"{kernel.name}\n\n{kernel.source.strip()}\n" for kernel in kernels] or [source]
    return "\n".join(found)
