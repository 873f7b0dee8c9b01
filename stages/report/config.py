"""Options of the report stage."""

from dataclasses import dataclass

from inductor_debug.models.options import whole


@dataclass
class ReportConfig:
    """Attributes:
    title: heading of the report; made from the run where it is None.
    max_rows: rows of a table shown in HTML; the files hold all.
    """

    title: str | None = None
    max_rows: int = whole(200)
