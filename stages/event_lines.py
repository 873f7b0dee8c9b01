"""What one of our processes tells another: an event is a dataclass's instance, and a line of JSON."""

import json
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from inductor_debug.models.shapes import Mismatch, reader
from inductor_debug.stages.encoding import jsonable

Event = TypeVar("Event")


class EventLines(Generic[Event]):
    """Writes events as lines, and reads them back.

    Args:
        kinds: the events' classes.
    """

    def __init__(self, kinds: Iterable[Any]) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}

    def write(self, event: Event) -> str:
        """An event as a line."""
        return json.dumps([type(event).__name__, jsonable(event)]) + "\n"

    def read(self, line: bytes) -> Event:
        """The event that :meth:`write` wrote.

        Raises:
            ValueError: the line is no event.
        """
        try:
            name, content = json.loads(line)
            found: Event = reader(self._kinds[name])(content)
        except (ValueError, TypeError, KeyError, RecursionError, Mismatch) as error:
            raise ValueError(f"no event: {line[:80]!r}") from error
        return found
