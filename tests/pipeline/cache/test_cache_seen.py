"""What the user's code took from its surroundings: files, packages and variables, and none of what is installed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
from safetensors.numpy import save_file

from inductor_debug.pipeline.cache.key import ABSENT

PROGRAM = """
import json, os, sys
from inductor_debug.pipeline.cache.key import content_of
from inductor_debug.pipeline.cache.seen import Seen, imported_packages
seen = Seen([{apart!r}])
content_of({earlier!r})  # of an earlier result, to see whether it stands
sys.path.insert(0, {folder!r})
import mine
mine.build()
import filelock
sys.path[:] = [path for path in sys.path if path != {folder!r}]
print(json.dumps([seen.files(), imported_packages(), seen.variables(), seen.modules(), seen.cwd()]))
os.chdir({folder!r})
open("mine.py").read()
print(json.dumps(seen.cwd()))
with open("mine.py", "a") as file:
    file.write("# edited")
print(json.dumps(seen.edited(seen.files())))
"""
FOLDERS = ("folder", "walked", "globbed", "path", "deep", "listed")
MINE = """
import glob
import os
import pathlib
import safetensors
from helper import depth
def build():
    open({data!r}).read()
    open({link!r}).read()
    os.listdir({folder!r})
    list(os.walk({walked!r})), glob.glob({globbed!r} + "/*"), [*pathlib.Path({path!r}).glob("*.txt")]
    [*pathlib.Path({deep!r}).rglob("*.txt")], sorted(pathlib.Path({listed!r}).iterdir())
    global kept
    kept = safetensors.safe_open({weights!r}, framework="np")  # native code maps it
    open({apart!r}).read()
    open({written!r}, "w").write("1")
    with open({gone!r}, "w") as file:
        file.write("1")
    open({gone!r}).read()
    os.unlink({gone!r})
    try:
        open({never!r})
    except FileNotFoundError:
        pass
    os.environ["MY_WIDTH"], os.environ.get("MY_DEPTH"), os.getenv("MY_HEADS", "2"), "MY_FLAG" in os.environ
"""


def test_what_the_users_code_takes_is_seen(tmp_path: Path) -> None:
    folder, apart = tmp_path / "code", tmp_path / "cache"
    folder.mkdir()
    apart.mkdir()
    known = ("data", "written", "gone", "never", "link", "earlier", *FOLDERS)
    names = {name: str(tmp_path / name) for name in known}
    names |= {"apart": str(apart / "kept"), "weights": str(tmp_path / "w.safetensors")}
    for name in FOLDERS:
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    save_file({"w": numpy.ones(3)}, names["weights"])
    for name in ("data", "apart", "earlier"):
        Path(names[name]).write_text(name)
    (folder / "helper.py").write_text("import os\ndepth = os.environ.get('HELPERS')\n")
    (folder / "mine.py").write_text(MINE.format(**names))
    program = PROGRAM.format(folder=str(folder), apart=str(apart), earlier=names["earlier"])
    variables = {"MY_WIDTH": "8", "MY_FLAG": "1", "PATH": "/usr/bin", "NOT_READ": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told, directory, edited = map(json.loads, done.stdout.splitlines())
    files, packages, looked_up, modules, before = told
    ours = {Path(path).relative_to(tmp_path).as_posix() for path in files if Path(path).is_relative_to(tmp_path)}
    assert ours == {"code/helper.py", "code/mine.py", "data", "gone", "never", "link", *FOLDERS, "w.safetensors"}
    assert files[names["link"]] == files[names["data"]]
    assert files[names["gone"]] == files[names["never"]] == ABSENT
    assert not any("/site-packages/" in path or path.endswith(".pyc") for path in files)
    assert "filelock" in packages and "torch" not in packages
    assert modules["filelock"].endswith("/filelock/__init__.py")
    assert modules.keys().isdisjoint({"mine", "helper", "inductor_debug", "json"})  # found by the code's own doing
    assert edited == [str(folder / "mine.py")]
    assert (before, directory) == ("", str(folder))
    assert looked_up.keys() == {"MY_WIDTH", "MY_DEPTH", "MY_HEADS", "MY_FLAG", "HELPERS"}
    assert [name for name, value in looked_up.items() if value == ABSENT] == ["HELPERS", "MY_DEPTH", "MY_HEADS"]
    assert "8" not in looked_up.values()  # what stands for it


def test_a_file_that_was_not_there_counts_by_a_relative_path_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("""
def build():
    try:
        open("overrides.json")
    except FileNotFoundError:
        pass
""")
    program = (
        "import json, sys\nfrom inductor_debug.pipeline.cache.seen import Seen\nseen = Seen([])\n"
        f"sys.path.append({str(tmp_path)!r})\nimport mine\nmine.build()\n"
        "print(json.dumps([seen.files(), seen.cwd()]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    files, directory = json.loads(done.stdout)
    assert files[str(tmp_path / "overrides.json")] == ABSENT and directory == str(tmp_path)


def test_what_was_imported_before_is_edited_where_it_was_written_since(tmp_path: Path) -> None:
    """As in a worker that is forked from a process that has imported a package: its module is the older one."""
    (tmp_path / "mine.py").write_text("WIDTH = 8\n")
    program = (
        "import json, sys, time\nfrom inductor_debug.pipeline.cache import seen\n"
        f"sys.path.append({str(tmp_path)!r})\nimport mine\n"
        "time.sleep(0.05)\nopen(mine.__file__, 'a').write('# edited')\ntime.sleep(0.05)\nfound = seen.Seen([])\n"
        "print(json.dumps(found.edited(found.files())))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [str(tmp_path / "mine.py")]
