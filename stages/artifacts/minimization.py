"""What minify stores beside a script."""

from dataclasses import dataclass

from inductor_debug.models.shapes import Number


@dataclass(frozen=True)
class MinifiedRecord:
    """minify/minified.json.

    Attributes:
        message: what was found, in words.
        stage: that met the failure; empty where minify itself looked for one.
        expected: the failure that it met, as ``failure`` tells one; of an exception its type alone.
        path, kernel: of the script, and of what the backend generates for it; empty for none.
        failure: what the script shows: ``defect``, ``error TYPE in …``, ``signal NUMBER``, ``hang``.
        graph, node, target: id of the graph that it is a part of, and its last operation.
        source: file:line of that, from the captured graph; empty where no stage captured it.
        operations, before: how many it has, and the graph had.
        minimal: whether the failure is gone as soon as any one of them is left out.
        verified: whether a fresh process showed the failure; ``reason`` says why not.
        tried: programs that were executed. seconds: wall clock.
    """

    message: str
    stage: str
    expected: str
    path: str
    kernel: str
    failure: str
    graph: str
    node: str
    target: str
    source: str
    operations: int
    before: int
    minimal: bool
    verified: bool
    reason: str
    tried: int
    seconds: Number
