"""One sampling process: ``python -P -m stages.benchmark.process RESULTS_FD``, with its request as JSON on its input.

What it does stands in :mod:`stages.benchmark.sampling`.
"""

import sys

from inductor_debug.models.collection import kept_imports
from inductor_debug.stages.process_end import leave

if __name__ == "__main__":
    with kept_imports():
        from inductor_debug.stages.benchmark.sampling import main
    leave(main(sys.argv[1:]))
