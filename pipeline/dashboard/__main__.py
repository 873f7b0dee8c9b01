"""The server: ``python -P -m inductor_debug.pipeline.dashboard run app.py --FLAG… -- FOLDER``.

It is Streamlit's own program, started with what the first reader would else wait for: the pages are imported, and the
runs are read.
"""

import sys
from pathlib import Path

from streamlit.web import cli

from inductor_debug.pipeline.dashboard import app  # noqa: F401 - imports all pages
from inductor_debug.pipeline.dashboard.outputs import opened

if __name__ == "__main__":
    opened(Path(sys.argv[-1])).rows()
    cli.main(prog_name="streamlit")
