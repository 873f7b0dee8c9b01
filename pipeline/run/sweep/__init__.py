"""A sweep's tables, page and exit code, from what its jobs stored."""

from inductor_debug.pipeline.run.sweep.rows import job_exit_code, split_override, sweep_exit_code
from inductor_debug.pipeline.run.sweep.table import PAGE, write_sweep_table

__all__ = ["PAGE", "job_exit_code", "split_override", "sweep_exit_code", "write_sweep_table"]
