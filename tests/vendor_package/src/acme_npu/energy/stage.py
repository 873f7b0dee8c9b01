"""The stage itself."""

from acme_npu.energy.declaration import DECLARATION
from inductor_debug import GraphRecord, Stage, StageContext, StageResult

TABLE = "acme_energy/operations.csv"


class EnergyStage(Stage):
    """Reads the captured graphs, writes ``acme_energy/operations.csv``: a row an operation whose FLOPs are known."""

    declaration = DECLARATION

    def run(self, context: StageContext) -> StageResult:
        import pandas

        names = [name for name in context.artifacts.names("capture/graphs/") if name.endswith("ward.json")]
        graphs = [GraphRecord.from_json(context.artifacts.read_json(name)) for name in names]
        rows = [
            {"graph": graph.id, "operation": node.name, "microjoules": node.flops * self.config.picojoules / 1e6}
            for graph in graphs
            for node in graph.nodes
            if node.flops
        ]
        table = pandas.DataFrame(rows, columns=["graph", "operation", "microjoules"])
        total = float(table["microjoules"].sum())
        return StageResult(
            "passed",
            f"{total:.3g} µJ a step",
            artifacts={TABLE: table},
            summary={"acme_energy": {"microjoules": total}},
            digest={TABLE: []},
        )
