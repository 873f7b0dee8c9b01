"""Standalone reproductions: part of a captured graph as a script that needs torch alone, run before it is believed.

::

    program = Program.of(graph, ["convolution"])      # the operation, its operands made from their metadata
    text = script(program, check, title="…")          # one plain-torch file
    [found] = verify([Script("name", text, check.line)])  # a fresh process: found.verified, found.reason

Writing works on stored records and never imports torch; verifying starts processes that do.
"""

from inductor_debug.stages.repro.check import Check
from inductor_debug.stages.repro.program import GraphIndex, NotReproducible, Operand, Program
from inductor_debug.stages.repro.script import script
from inductor_debug.stages.repro.verify import Script, Verification, verify

__all__ = ["Check", "GraphIndex", "NotReproducible", "Operand", "Program", "Script", "Verification", "script", "verify"]
