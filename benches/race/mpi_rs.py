"""The crate mpi-rs, an MPI in Rust: built from crates.io with its feature `shm`, by the package benches/mpi-rs."""

import os
import re
import subprocess
from pathlib import Path

import jobs
import peers

NAME = "mpi-rs"
OPERATIONS = frozenset(
    ["barrier", "allreduce", "allgatherv", "broadcast", "reduce", "gather", "scatter", "alltoall", "exscan", "start-up"]
)
PACKAGE = peers.ROOT / "benches/mpi-rs"


def peer(work):
    """The library, built, after a first run. `jobs.Failed` says why that is not possible."""
    target = Path(work).parent / "mpi-rs"
    build = ["cargo", "build", "--quiet", "--locked", "--release"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    try:
        subprocess.run(build, cwd=PACKAGE, env=environment, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise jobs.Failed(f"it cannot be built: {error.stderr.strip()[-300:]}") from None
    version = re.search(r'name = "mpi-rs"\nversion = "(.*)"', (PACKAGE / "Cargo.lock").read_text())[1]
    programs = target / "release"

    def launch(ranks, fit):
        return [str(programs / "mpi-rs-exec"), "-n", str(ranks)], {}

    about = "feature shm; it binds no ranks"
    made = peers.Peer(NAME, version, about, launch, bench=programs / "intranode-bench-mpi-rs", operations=OPERATIONS)
    command, environment = made.command(2, 2, [made.bench, 0.001, "broadcast:8"])
    jobs.run(command, environment, timeout=60)
    return made
