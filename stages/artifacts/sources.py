"""What capture stores of the model's source: the functions that operations came from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Excerpt:
    """Lines of a source file.

    Attributes:
        file: as nodes name it. first: number of the first line. text: the lines.
    """

    file: str
    first: int
    text: str
