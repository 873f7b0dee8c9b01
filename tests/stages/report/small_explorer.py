"""A run of a linear layer and a ReLU at every level, as its stages would store it."""

from small_report import full

TENSOR = {"shape": [4, 8], "dtype": "float32", "stride": [8, 1], "device": "cpu"}


def node(name, *, target="aten.relu.default", module="", inputs=(), op="call_function", line=None, **more):
    source = {"file": "net.py", "line": line, "code": "y = x @ w"} if line else None
    return {"name": name, "op": op, "target": target, "module": module, "inputs": list(inputs), "source": source,
            "outputs": [TENSOR]} | more  # fmt: skip


def graph(id, *nodes):
    return {"id": id, "kind": id.rpartition(".")[2], "nodes": list(nodes)}


WEIGHT = node("primals_1", target="fc.weight", op="placeholder", role="parameter")
DYNAMO = graph("g0.dynamo",
               node("linear", target="torch.nn.functional.linear", module="fc", line=7, flops=2048),
               node("relu", target="torch.relu", module="act", inputs=["linear"], line=8))  # fmt: skip
FORWARD = graph("g0.forward", WEIGHT,
                node("addmm", target="aten.addmm.default", module="fc", inputs=["primals_1"], line=7,
                     origins=["linear"], flops=4096),
                node("relu", module="act", inputs=["addmm"], line=8, origins=["relu"]))  # fmt: skip
BACKWARD = graph("g0.backward",
                 node("threshold_backward", target="aten.threshold_backward.default", module="act",
                      origins=["relu"], line=8))  # fmt: skip


def mapped():
    def one(name, inputs, captured, **more):
        return {"node": name, "target": f"aten.{name}.default", "source": "net.py:8", "inputs": inputs,
                "captured": [{"graph": "g0.forward", "node": name} for name in captured], "outputs": [TENSOR],
                } | more  # fmt: skip

    return [one("made_by_a_pass", [], [], source="net.py:7", pre_grad=["linear"]),
            one("mul", ["made_by_a_pass"], ["relu"]), one("maximum", ["mul"], ["relu"])]  # fmt: skip


def launch(name, handle, nodes, reads, writes, line, **more):
    def buffers(names):
        return [{"name": name, "role": "buffer", "shape": [4, 8], "dtype": "float32", "bytes": 128} for name in names]

    own = {"file": "net.py", "line": line, "code": "y", "own": True}
    return {"name": name, "handle": handle, "kind": "cpp", "file": None, "nodes": nodes, "sources": [own],
            "main": own | {"share": 1.0}, "reads": buffers(reads), "writes": buffers(writes), "bytes_read": 128,
            "bytes_written": 128} | more  # fmt: skip


def explored(**more):
    """Files of the run."""
    columns = "graph,call,node,target,operations,original,module,source,kernel,elements,dtype,state,ratio,bound\n"
    rows = ("finding,graph,node,target,operand,module,source,rule,effect,severity,measured,limit,cost_bytes,cost_share,"
            "message,suggestion\n")  # fmt: skip
    finding = "g0.forward,{},fc.weight,parameter,fc,net.py:7,alignment,{},{},8,16,96,0.12,{},pad\n"
    content = full(**{
        "capture/graphs/g0.dynamo.json": DYNAMO,
        "capture/graphs/g0.forward.json": FORWARD,
        "capture/graphs/g0.backward.json": BACKWARD,
        "constrain/violations.csv": rows + "f1," + finding.format("primals_1", "pad", "warning", "8 columns")
        + "f2," + finding.format("relu", "reject", "waived", "waived"),
        "lower/g0.forward/nodes.json": {"nodes": mapped()},
        "lower/g0.forward/provenance.json": {"kernels": [
            launch("extern_kernels.addmm", 1, ["made_by_a_pass"], ["arg0"], ["buf0"], 7, kind="extern"),
            launch("cpp_fused_relu_0", 2, ["mul", "maximum"], ["buf0"], ["buf1"], 8, file="kernels/mm.cpp")],
            "lines": {"net.py:8": ["cpp_fused_relu_0:2"]}},
        "kerneldiff/nodes.csv": f"{columns}g0.forward,0,mul,aten.mul.Tensor,mul,,act,net.py:8,cpp_fused_relu_0:2,32,"
        "float32,right,0.5,max\ng0.forward,0,gone,aten.maximum.default,mul maximum,,act,net.py:8,cpp_fused_relu_0:2,"
        "32,float32,wrong,inf,max\n",
        "kerneldiff/diagnosis.json": diagnosis(),
        "profile/kernels.csv": "graph,kernel,handle,kind,launches,time_us,share\n"
        "g0.forward,extern_kernels.addmm,1,extern,1,30.0,0.75\ng0.forward,cpp_fused_relu_0,2,cpp,1,10.0,\n",
    })  # fmt: skip
    return content | more


def diagnosis():
    place = {"graph": "g0.forward", "node": "maximum", "target": "aten.maximum.default", "operations": ["maximum"]}
    culprit = {"place": place, "kind": "operation", "ratio": None, "slope": None, "call": 0}
    localized = {"kind": "operation", "method": "observed", "message": "It is wrong.", "culprits": [culprit]}
    return {"verdict": "defect", "kind": "operation", "localized": localized}
