"""Cobre's training over this library, and the same Cobre over MPICH."""

import json
import os
import re
import shutil
import subprocess
import sys

import jobs
import peers

# The contestants: cobre-cli supports MPI, and its own builds are for MPICH.
PEER = "mpich"


class Training:
    """One case, and a program for each of the two."""

    def __init__(self, work):
        lock = (peers.ROOT / "Cargo.lock").read_text()
        version = re.search(r'name = "cobre-sddp"\nversion = "([^"]+)"', lock)[1]
        self.mpi = work / f"cobre-{version}/bin/cobre"
        if not self.mpi.exists():
            home = peers.install(PEER, peers.PACKAGES[PEER][0], work)
            print(f"building cobre-cli {version} over {PEER}", file=sys.stderr)
            environment = os.environ | {"MPICC": f"{home}/bin/mpicc", "LD_LIBRARY_PATH": f"{home}/lib"}
            where = ["--root", self.mpi.parent.parent, "--target-dir", work / "cobre-build"]
            install = ["cargo", "install", "--quiet", "--locked", "--features", "mpi", *where, f"cobre-cli@{version}"]
            subprocess.run(install, env=environment, check=True)
        self.ours = peers.cargo("intranode-cobre", "cobre-shm")
        self.work = work
        self.case = work / "cobre-case"
        shutil.rmtree(self.case, ignore_errors=True)
        # As `make demo`. The simulation that follows the training is not counted.
        shape = ["--iterations", "20", "--cut-selection", "lml1", "--max-active-per-stage", "200"]
        subprocess.run([self.ours, "case", self.case, *shape], check=True, stdout=subprocess.DEVNULL)

    def measure(self, peer, ranks, cores):
        """The seconds that Cobre reports for its training, three times."""
        times = []
        for _ in range(3):
            out = self.work / "cobre-out"
            shutil.rmtree(out, ignore_errors=True)
            program = self.mpi if peer.home else self.ours
            # Our launcher sets the number of threads of a rank; those of MPI do not.
            quiet = [program, "run", self.case, "--threads", "1", "--output", out, "--quiet"]
            command, environment = peer.command(ranks, cores, quiet)
            jobs.run(command, environment, timeout=300)
            told = json.loads((out / "training/metadata.json").read_text())
            times.append(told["duration_seconds"] * 1e6)
        return [jobs.row("training", ranks, times)]
