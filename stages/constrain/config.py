"""Options of the constrain stage."""

from dataclasses import dataclass

from inductor_debug.models.options import whole


@dataclass
class ConstrainConfig:
    """Options of the constrain stage.

    Attributes:
        repros: reproductions written at most where a strict profile is broken; 0 for none.
        verified_repros: how many of them are run, each in a fresh process, which costs an import of torch.
    """

    repros: int = whole(20)
    verified_repros: int = whole(4)
