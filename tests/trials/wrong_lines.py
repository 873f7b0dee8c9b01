"""Wrong command lines of many kinds, drawn with a seed: what a hurried or a hostile person types.

Each is wrong by construction, so that exit code 2 is the only right answer.
"""

import dataclasses
import math
import random
import shlex
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field

from inductor_debug.models.options import choices_of, range_of
from inductor_debug.pipeline.config.help import GROUPS, options
from inductor_debug.pipeline.config.schema_fields import field_of, leaves
from inductor_debug.stages.registry import declared

ALL_STAGES = f"stages=[{','.join(declared())}]"
COMPLETE = (ALL_STAGES, "accel.numerics.accumulate=bfloat16")
"""With which every option means something."""
HUGE = str(10**43)
NUMBERS = [
    "inf",
    "-inf",
    "nan",
    "-1",
    "0",
    "1e15",
    str(10**15),
    HUGE,
    "1" * 400,
    "2.5",
    "true",
    "''",
    "1,2",
    "[1]",
    "x",
]


@dataclass(frozen=True)
class Line:
    """One command line.

    Attributes:
        kind: of mistake, for the counts.
        words: what is typed behind ``python -m pipeline``, or behind ``inductor-debug`` where ``command``.
        wrong: the words that a suggestion takes the place of; by default the last one.
        command: whether it is one of ``inductor-debug``'s own commands.
        environment: variables that are set.
        worker: whether only the worker, which has torch, can tell.
        says: what the message has to hold.
    """

    kind: str
    words: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    command: bool = False
    environment: dict[str, str] = field(default_factory=dict, hash=False)
    worker: bool = False
    says: tuple[str, ...] = ()


def misspelt(name: str, draw: random.Random) -> str:
    """``name`` with one letter lost, doubled, swapped or replaced."""
    while True:
        at = draw.randrange(len(name))
        letter = draw.choice("abcdefghijklmnopqrstuvwxyz")
        made = draw.choice(
            [name[:at] + name[at + 1 :], name[:at] + name[at] + name[at:], name[:at] + letter + name[at + 1 :],
             name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :] if at else name]
        )  # fmt: skip
        if made and made != name and not made.startswith(".") and ".." not in made:
            return made


def wrong_lines(seed: int) -> list[Line]:
    """All of them, in a fixed order; what is drawn depends on ``seed``."""
    draw = random.Random(seed)
    drawn = [*_keys(draw), *_choices(draw), *_numbers(draw), *_stages(draw)]
    return [*drawn, *_types(), *_syntax(), *_files(), *_commands(), *_combinations(), *_told_by_the_worker()]


def _keys(draw: random.Random) -> Iterator[Line]:
    keys = list(leaves())
    known = {*keys, *GROUPS, "stages", "hydra"}
    for key in draw.sample(keys, 40):
        above, _, name = key.rpartition(".")
        made = f"{above}.{misspelt(name, draw)}" if above else misspelt(name, draw)
        if made not in known:
            yield Line("misspelt key", (*COMPLETE, f"{made}=1"))
    for key in draw.sample([key for key in keys if "." in key], 12):
        name = key.rpartition(".")[2]
        if name not in known:
            yield Line("key without its group", (*COMPLETE, f"{name}=1"))
    for word in ("=1", ".=1", "a.b.c.d=1", "+x=1", "++accel.x.y=1", "~seed.x", "model.build.=1", "accel..alignment=1",
                 "Accel.alignment=8", "ACCEL=none", "aligment=8", "ключ=1", "accel.выравнивание=8", "hydra.nosuch=1",
                 "hydra/launcher=nosuch", "seed.x=1", "runner=x", "accel.numerics=x", "-x", "--nosuch", "---",
                 "model@x=1"):  # fmt: skip
        yield Line("no such key", (word,))


def _choices(draw: random.Random) -> Iterator[Line]:
    for group in GROUPS:
        names = options(group)
        for name in draw.sample(names, min(4, len(names))):
            made = misspelt(name, draw)
            if made not in names:
                yield Line("misspelt choice", (f"{group}={made}",))
        for name in ("my_own", "../../etc/passwd", "''", "null.x", "资源", "a b", "x" * 300, "~", "{a: 1}"):
            yield Line("no such choice", (f"{group}={name}",))
    yield Line("torch's own backend", ("backend=cudagraphs",), says=("Try: backend=dynamo backend.name=cudagraphs",))
    yield Line("torch's own backend", ("backend.name=cudagraphs",), says=("Try: backend=dynamo",))
    yield Line("one's own profile", ("accel=my_chip",), says=("--config-dir", "my_chip.yaml"))
    for key in leaves():
        found = field_of(key)
        if found is not None and (closed := choices_of(found[0])):
            for value in (misspelt(closed[0], draw), "", "NONE", "1"):
                if value not in closed:
                    yield Line("outside a closed set", (ALL_STAGES, f"{key}={value}"))
    for device in ("gpu", "cuda:", "cuda:-1", "cpu:x", "CPU", "cuda:0:1", "tpu", ""):
        yield Line("no such device", (f"device={device}",))


def _numbers(draw: random.Random) -> Iterator[Line]:
    """Every numeric option with some of the numbers that it does not take."""
    for key in leaves():
        found = field_of(key)
        declared = range_of(found[0]) if found else None
        if declared is not None:
            beyond = [text for text in NUMBERS if not declared.holds(_number(text, declared.whole))]
            for text in draw.sample(beyond, min(5, len(beyond))):
                yield Line("outside a range", (*COMPLETE, f"{key}={text}"))


def _number(text: str, whole: bool) -> float:
    try:
        return int(text) if whole else float(text)
    except ValueError:
        return math.nan


def _types() -> Iterator[Line]:
    for key, kind in leaves().items():
        kinds = typing.get_args(kind) or (kind,)
        if bool in kinds:
            for word in ("maybe", "2", "0", "1.0", "'3'", "'yes please'", "nan"):
                yield Line("wrong type", (ALL_STAGES, f"{key}={word}"), says=(f"{key}: got", "true or false"))
        declared = field_of(key)
        if str in kinds and declared is not None and declared[0].default != "":
            for word in ("", "' '"):
                yield Line("blank", (ALL_STAGES, f"{key}={word}"))
        if typing.get_origin(kind) in (list, dict) or any(typing.get_origin(item) in (list, dict) for item in kinds):
            yield Line("wrong type", (ALL_STAGES, f"{key}=5"))
    for word in ("accel.rules=[1]", "accel.rules=[{rule: alignment, value: 0}]", "accel.rules=[{rule: nosuch}]",
                 "accel.rules=[{rule: alignment}]", "accel.rules=[{rule: size, value: {min: 9, max: 1}}]",
                 f"accel.rules=[{{rule: alignment, value: {HUGE}}}]", f"accel.tile=[{HUGE}]", "accel.tile=[]",
                 "accel.tile=[1,2,3,4,5]", "accel.dtypes=[]", "accel.dtypes=[float31]", "accel.denied=['a b']",
                 "accel.max_tensor_bytes=-1", "accel.max_tensor_bytes=16XB", "accel.max_peak_bytes=0",
                 "accel.max_tensor_bytes=99999999999999999999GiB", "accel.waivers=[{rule: alignment}]",
                 "accel.waivers=[{reason: x}]", "accel.waivers=[{rule: rank, reason: x, expires: soon}]",
                 "accel.numerics.storage.float32=1-99-99", "accel.numerics.storage.int8=bfloat16",
                 "accel.numerics.casts.int32=int64", "accel.numerics.tile=[0]", "accel.numerics.accumulate=bfp8",
                 "accel.numerics.accumulate_block=4", "accel.peaks.flops.float31=1", "accel.peaks.flops.float32=inf",
                 "accel.rules=[{rule: alignment, value: 8, roles: activation}]", "accel.rules=[null]",
                 "accel.rules=[{rule: custom, value: {}}]", "accel.rules=[{rule: layout, value: diagonal}]",
                 "runner.memory_limit=lots", "runner.memory_limit=0", "runner.memory_limit=99999999999999GiB",
                 "model.build._target_=nosuch", "model.build._target_=", "model.build._target_=a..b",
                 "model.build._target_=os.system('x')", "model.inputs=inputs.pt"):  # fmt: skip
        yield Line("wrong value", ("accel=warn16", word))


def _syntax() -> Iterator[Line]:
    for word in ("accel.dtypes=[", "accel.dtypes=]", "accel.rules=[{rule: alignment]", "seed=(1", "seed=1)", "'seed=1",
                 "seed='1", 'seed="1', "seed=${", "seed=${nope}", "seed=${oc.env:NOSUCH_VARIABLE}", "seed=${seed}",
                 "model.name=${model.name}", "seed=${oc.nosuch:1}", "seed=$(touch executed)", "seed=`touch executed`",
                 "seed=1;touch executed", "seed=range(1,", "seed=choice(1,2)", "dtype=glob(*)", "seed={a:1}",
                 "bert", "", " ", "=", "seed", "\x00seed=1", "seed=\x1b[31m1", "~", "+", "++", "seed==1", "seed=1=2",
                 "accel.alignment=8,16", "dtype=float32,float64", "model=bert,resnet18", "accel.dtypes=float16,int8",
                 "stages=capture,lower", "seed=shuffle(1,2)", "💥", "💥=1", "seed=💥"):  # fmt: skip
        yield Line("bad syntax", (word,))
    for word in ("dtype=float32,float33", "accel.alignment=8,x", "model=bert,berrt", "stages=[capture],[nope]", "seed=",
                 "seed=range(0,3),x", "seed=1,,2", "dtype=glob(*)", "accel.alignment=8,0", "accel=none,nosuch",
                 f"seed=1,{HUGE}", "seed=range(1,1e12)", "runner.cache=0,1"):  # fmt: skip
        yield Line("bad sweep", ("--multirun", word))
    for word in ("accel.strict=maybe", "accel.alignmnt=8"):
        yield Line("bad sweep", ("experiment=alignment_sweep", word))


def _stages(draw: random.Random) -> Iterator[Line]:
    for name in draw.sample(list(declared()), 5):
        yield Line("misspelt stage", (f"stages=[capture,{misspelt(name, draw)}]",))
    yield Line("no stage", ("stages=[]",))
    yield Line("no stage", ("stages=null",))
    yield Line("stage twice", ("stages=[capture,capture]",))
    yield Line("no such stage", ("~stages.nope",))
    yield Line("no such stage", ("+stages=nope",))
    for name, stage in declared().items():
        for item in dataclasses.fields(stage.options)[:2]:
            if name != "capture":
                yield Line(
                    "option of a stage that is not selected", ("stages=[capture]", f"stages.{name}.{item.name}=1")
                )
    yield Line("wrong options", ("stages=[guards]", "stages.guards.vary=[nosuch]"))
    yield Line("wrong options", ("stages=[guards]", "stages.guards.dims.batch=x"))
    yield Line("wrong options", ("stages=[guards]", "stages.guards.dims.nosuch.x=0"))


BROKEN = {
    "wrong_type": "name: wrong_type\nalignment: sixteen\n",
    "wrong_key": "name: wrong_key\nalignmnt: 16\n",
    "wrong_rule": "name: wrong_rule\nrules: [{rule: alignment, efect: pad}]\n",
    "huge": f"name: huge\nalignment: {HUGE}\n",
    "infinite": "name: infinite\npeaks: {bandwidth: .inf}\n",
    "not_yaml": "name: not_yaml\ndtypes: [float32\nstrict: true\n",
    "tabs": "name: tabs\n\talignment: 3\n",
    "listed": "- alignment\n",
    "scalar": "alignment\n",
    "twice": "name: twice\nalignment: 8\nalignment: 16\n",
    "latin": "name: caf\udce9\n",
    "tagged": "name: !!python/object/apply:os.system ['touch executed']\n",
    "unclosed": "name: 'x\n",
    "anchor": "name: *nowhere\n",
}  # fmt: skip
"""Name → what ``accel/NAME.yaml`` in the user's folder holds; a surrogate is a byte that is not UTF-8."""


def _files() -> Iterator[Line]:
    for name in (*BROKEN, "folder", "dangling", "nul"):
        yield Line("broken YAML of one's own", ("--config-dir", "my_conf", f"accel={name}"))
    for words in (("--config-dir", "nowhere"), ("--config-dir", "file.txt"), ("--config-dir", ""), ("--config-dir",),
                  ("--config-path", "nowhere"), ("--config-path", "my_conf", "--config-name", "nosuch"),
                  ("--config-name", "nosuch"), ("--config-path", "file.txt"), ("--config-name", "../../etc/passwd"),
                  ("--config-path", "my_conf/accel", "--config-name", "not_yaml"),
                  ("--config-path", "my_conf/accel", "--config-name", "listed"),
                  ("--config-path", "my_conf/accel", "--config-name", "latin"),
                  ("--config-path", "my_conf/accel", "--config-name", "wrong_key")):  # fmt: skip
        yield Line("missing or broken file", words, wrong=words)


COMMANDS = """
nosuch
shwo RUN
--nosuch
show
show nosuch
show RUN RUN
show RUN --format xml
show RUN --nosuch
show file.txt
list nowhere
list file.txt
list a b
list --format
analyze RUN --type nosuch
analyze RUN --rows -1
analyze RUN --rows x
analyze nosuch
analyze RUN --graph g99.forward --type kernels
analyze RUN --type guards
analyze RUN --type ''
compare
compare RUN
compare RUN nosuch
compare nosuch nosuch2
compare RUN RUN --limits
compare RUN RUN --limits nosuch
compare RUN RUN --limits file.txt
compare RUN RUN RUN --limits nosuch
check
check nosuch
check RUN accel=nosuch
check RUN accel=none accel=mock
check RUN accel.alignment=x
check RUN accel.alignmnt=8
check RUN accel.alignment=0
check RUN accel.alignment={HUGE}
check RUN accel.dtypes=[float31]
check RUN alignment=[
check RUN --grid alignment
check RUN --grid alignment=
check RUN --grid nosuch=1:3
check RUN --grid alignment=0:3
check RUN --grid alignment=9:1
check RUN --grid alignment=x:y
check RUN --grid alignment=1:1000000000000
check RUN --grid alignment=1:3:0
check RUN --grid alignment={HUGE}
check RUN --grid =1
check RUN --grid dtypes=1
check RUN RUN
check RUN --models --grid alignment=1:3
check RUN --config-dir nowhere
check RUN accel=not_yaml --config-dir my_conf
check file.txt
check RUN accel=latin --config-dir my_conf
check RUN accel=nosuch.yaml
check RUN accel=strict16 --out file.txt
rerun
rerun nosuch
rerun file.txt
rerun RUN nosuch=1
rerun RUN accel=nosuch
rerun RUN --nosuch
completion
completion tcsh
completion bash zsh
profiles x
profiles --format csv
run nosuch=1
run --nosuch
run run
''
show ''
list ''
check RUN --out ''
"""
"""Behind ``inductor-debug``, one a line; RUN is a stored run."""


def _commands() -> Iterator[Line]:
    for line in COMMANDS.strip().splitlines():
        yield Line("command", tuple(shlex.split(line.replace("{HUGE}", HUGE))), command=True)
    yield Line("command", ("show", "\x1b[31m"), command=True)


def _combinations() -> Iterator[Line]:
    for variables in ({"MOCK_ALIGNMENT": "x"}, {"MOCK_ALIGNMENT": "0"}, {"MOCK_ALIGNMENT": HUGE},
                      {"MOCK_STRICT": "maybe"},
                      {"MOCK_MAX_MEMORY": "lots"}, {"MOCK_MAX_MEMORY": ""}, {"MOCK_ALIGNEMENT": "8"}, {"MOCK_": "1"},
                      {"MOCK_MAX_MEMORY": "-1"}, {"MOCK_MAX_MEMORY": HUGE + "GiB"}, {"MOCK_STRICT": ""}):  # fmt: skip
        yield Line("variable", ("accel=mock",), environment=variables)
    yield Line("combination", ("model=custom",))
    yield Line("combination", ("~model",), says=("Try: model=",))
    yield Line("combination", ("+dtype=float64",), says=("Try: dtype=float64",))
    yield Line("combination", ("++model=bert",), says=("Try: model=bert",))
    for word in ("hydra.verbose=3", "hydra.run.dir=", "hydra.run.dir=' '", "hydra.sweep.dir=", "hydra.job.chdir=2"):
        yield Line("Hydra's own key", (word,), says=(word.partition("=")[0],))
    yield Line("combination", ("-sc", "install=bash"), says=("inductor-debug completion bash",), wrong=("-sc",))


WORKERS = """
reference.backend=nosuch
reference.backend=dynamo
device=cuda:77
reference.device=cuda:77
backend.inductor.nosuch=1
backend.inductor.max_autotune=x
backend.options.x=1
stages=[capture,constrain] | accel.denied=[aten.nosuch]
stages=[capture,constrain] | accel.rules=[{rule: custom, value: {_target_: nosuch.f}}]
model.build.nosuch=1
model.build._target_=nosuch.build
model.build._target_=nets.nosuch
model.build._target_=nets
model.build._target_=models.nests.build
model.build._target_=nets.number
model.build._target_=nets.nothing
model.build._target_=broken.build
backend._target_=nosuch.Chip
backend._target_=nets.build
backend.adapter=nosuch
model.inputs=nosuch.safetensors
precision=autocast
stages=[kerneldiff] | stages.kerneldiff.baseline=nosuch
stages=[guards] | stages.guards.dims.batch.nosuch=0
stages=[guards] | stages.guards.dims.batch.input=9
stages=[capture,constrain] | accel.rules=[{rule: custom, value: {_target_: nets.build, nosuch: 3}}]
stages=[constrain]
stages=[report,lower,constrain]
stages=[kerneldiff] | stages.kerneldiff.steps=2
backend=eager | backend.inductor.debug=true
backend=dynamo | backend.name=nosuch
backend=mock | backend.options.nosuch=1
"""
"""What only the worker can tell of overrides, one command line a line."""


def _told_by_the_worker() -> Iterator[Line]:
    small = ("model=custom", "model.build._target_=nets.build", "stages=[capture]")
    sizes = [f"model.batch_size={10**15}", f"model.batch_size={2**62}"]
    for word in (*WORKERS.strip().splitlines(), *sizes):
        yield Line("told by the worker", (*small, *word.split(" | ")), worker=True)
