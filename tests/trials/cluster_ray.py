"""Sweeps over two Ray nodes, one of which is killed and started again: ``python tests/trials/cluster_ray.py``.

Two nodes run on this machine, each with a CPU to give. The sweep joins them (``cluster=ray``). Every ``--kill-every``
seconds the second node is killed by SIGKILL, with all its processes, and another one is started. The sweep ends with
exit code 0, and its table is that of the basic launcher but for times and ids: no job lost, none counted twice.

    pip install 'inductor-debug[ray]'
    python tests/trials/cluster_ray.py --jobs 1000 --kill-every 30 --stages capture,constrain
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import cluster_support as support
from ray.cluster_utils import Cluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--kill-every", type=float, default=15.0)
    parser.add_argument("--stages", default="capture,constrain,kerneldiff,report")
    options = parser.parse_args()
    words = (f"stages=[{options.stages}]", f"accel.alignment=range(1,{options.jobs + 1})")
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            second = cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
            address = f"hydra.launcher.ray.init.address={cluster.address}"
            began, kills = time.monotonic(), 0
            sweep = support.start(root / "ray", *words, "cluster=ray", address)
            while sweep.poll() is None:
                try:
                    sweep.wait(options.kill_every)
                except subprocess.TimeoutExpired:
                    cluster.remove_node(second, allow_graceful=False)
                    kills += 1
                    second = cluster.add_node(num_cpus=1)
            took = time.monotonic() - began
            support.ended(sweep, root / "ray", 0)
        finally:
            cluster.shutdown()
        basic = support.start(root / "basic", *words)
        support.ended(basic, root / "basic", 3600)
        print(f"{support.compared(root / 'ray', root / 'basic')}; {kills} kills of a node in {took:.0f} s")


if __name__ == "__main__":
    main()
