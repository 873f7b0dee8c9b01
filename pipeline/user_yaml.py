"""YAML of the user's, looked at before OmegaConf reads it: it takes a word for a key, and writes every alias out."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from models.errors import ConfigurationError, shown
from pipeline.help import GROUPS

NODES, DEPTH = 100_000, 100
"""Values of a file at most, each alias counted as what it stands for, and mappings or lists within each other."""


def chosen_files(folders: Sequence[Path], overrides: Sequence[str]) -> Iterator[Path]:
    """The groups' files in ``folders`` whose name an override says."""
    said = " ".join(overrides)
    for folder in folders:
        for group in GROUPS:
            yield from (file for file in sorted((folder / group).glob("*.yaml")) if file.stem in said)


def check_yaml(file: Path) -> None:
    """ConfigurationError for a file that holds a text alone, or more than a configuration can.

    What is no YAML, or can't be read, passes: composing it says so.
    """
    import yaml

    root: Any = None
    try:
        root = yaml.compose(file.read_bytes(), Loader=yaml.SafeLoader)
        depth, nodes = _extent(root, {}) if root is not None else (0, 0)
    except (yaml.YAMLError, OSError):
        return
    except RecursionError:
        depth, nodes = DEPTH + 1, 0
    if isinstance(root, yaml.ScalarNode) and root.value:
        raise ConfigurationError(
            f"{file}: got the text {shown(root.value)}; valid: one 'key: value' a line.\nTry: name: {file.stem}"
        )
    if depth > DEPTH or nodes > NODES:
        got = f"lists or mappings more than {DEPTH} deep" if depth > DEPTH else f"{nodes:,} values, aliases written out"
        raise ConfigurationError(
            f"{file}: got {got}; valid: at most {NODES:,} values, {DEPTH} deep.\nTry: correct the file and run again"
        )


def _extent(node: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Depth and number of nodes below one, each alias counted as what it stands for; an endless one is too deep."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = (DEPTH + 1, 0)  # met again before it is known: it holds itself
    children = node.value if isinstance(node.value, list) else []
    inner = [item for child in children for item in (child if isinstance(child, tuple) else (child,))]
    extents = [_extent(item, known) for item in inner]
    known[id(node)] = (1 + max((depth for depth, _ in extents), default=0), 1 + sum(nodes for _, nodes in extents))
    return known[id(node)]
