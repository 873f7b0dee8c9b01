"""A sweep's table and exit code, from what its jobs stored."""

from inductor_debug.pipeline.run.sweep.rows import job_exit_code, split_override, sweep_exit_code
from inductor_debug.pipeline.run.sweep.table import write_sweep_table

__all__ = ["job_exit_code", "split_override", "sweep_exit_code", "write_sweep_table"]
