"""Pauses of the garbage collector."""

import gc
import subprocess
import sys

from inductor_debug.models.collection import paused_collection


def test_nothing_is_collected_within_a_pause_and_what_was_off_stays_off() -> None:
    with paused_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with paused_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_imported_for_good_is_in_no_collection_any_more() -> None:
    program = (
        "import gc\n"
        "from inductor_debug.models.collection import kept_imports\n"
        "with kept_imports():\n"
        "    before = gc.get_stats()[0]['collections']\n"
        "    import email.message, sqlite3, unittest.mock\n"
        "    assert gc.get_stats()[0]['collections'] == before\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 1000 and len(gc.get_objects()) < 1000\n"
        "circle = []; circle.append(circle); del circle\n"
        "assert gc.collect() > 0\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
