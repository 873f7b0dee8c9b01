"""``python -m inductor_debug``: the command ``inductor-debug``."""

import sys

from inductor_debug.pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
