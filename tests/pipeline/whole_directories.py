"""A run's directory, looked at as a whole."""

import hashlib

from runner_support import Outcome


def assert_complete(outcome: Outcome) -> None:
    """Manifest and summary agree, every file's hash is right, no temporary file or cache is left."""
    manifest = outcome.json("manifest.json")
    files = {path.relative_to(outcome.path).as_posix() for path in outcome.path.rglob("*") if path.is_file()}
    assert set(manifest["files"]) == files - {"manifest.json"}
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((outcome.path / name).read_bytes()).hexdigest() == digest, name
    assert not [name for name in files if name.endswith(".tmp") or name.startswith(".cache-")]
    assert [stage["name"] for stage in manifest["stages"]] == list(outcome.statuses)
