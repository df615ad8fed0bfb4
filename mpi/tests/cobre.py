#!/usr/bin/env python3
"""Trains a Cobre case on two and three nodes of this host, by MPICH's mpiexec with hosts that are forked here, and compares all that
is written, bounds, cuts and policy, bit for bit with a run of one process and with Cobre's own backend. Then it measures how much
memory the ranks of each node have: during the training, and for data of which each node has one copy.

The solver takes minutes to build; it is that of `cargo test --release -p intranode-cobre`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/launchers"), str(ROOT / "benches/race")]
import peers  # noqa: E402
from launchers import MPIS, Cases, Failed, mpi_environment, run, target  # noqa: E402

HOSTS = {"two nodes": [2, 2], "two uneven nodes": [3, 1], "three nodes": [1, 2, 1]}
CASE = "--stages=6 --forward-passes=7 --hydros=4 --openings=5 --scenarios=6 --iterations=5 --cut-selection=lml1".split()
LARGE = "--hydros=100 --thermals=50 --stages=48".split()


def build(home):
    """`cobre-shm`, and the same over MPI."""
    environment = mpi_environment(home) | {"MPICC": f"{home}/bin/mpicc"}
    cargo = ["--quiet", "--locked", "--release"]
    subprocess.run(["cargo", "build", *cargo, "--package", "intranode-cobre"], cwd=ROOT, check=True, env=environment)
    over_mpi = ["--package", "intranode-mpi", "--features", "cobre", "--bin", "cobre-shm-mpi"]
    lint = ["cargo", "clippy", *cargo, *over_mpi, "--", "--deny", "warnings"]
    subprocess.run(lint, cwd=ROOT, check=True, env=environment)
    subprocess.run(["cargo", "build", *cargo, *over_mpi], cwd=ROOT, check=True, env=environment)
    return target() / "release/cobre-shm", target() / "release/cobre-shm-mpi"


def succeeded(result):
    status, output = result
    if status != 0:
        raise Failed(f"status {status}:\n{output}")
    return output


class Training:
    """The case, what one process gives, and how ranks on several hosts are started."""

    def __init__(self, home, work):
        self.environment = mpi_environment(home)
        self.alone, self.over_mpi = build(home)
        self.work = work
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        self.by_itself("case", work / "case", *CASE)
        for backend in ["local", "shm"]:
            self.by_itself("run", work / "case", "--out", work / backend, "--backend", backend, "--threads=1", "--quiet")

    def by_itself(self, *arguments):
        return succeeded(run([self.alone, *arguments], self.environment))

    def on_hosts(self, counts, *arguments):
        hosts = ",".join(f"node{number}:{count}" for number, count in enumerate(counts))
        launcher = ["mpiexec", "-launcher", "fork", "-hosts", hosts, "-n", sum(counts)]
        return run([*launcher, self.over_mpi, *arguments], self.environment)

    def equal(self, name, counts):
        """Requires that all files are those of one process, and each rank's cuts and bases too."""
        out, policies = self.work / name.replace(" ", "-"), self.work / "policies"
        arguments = ["run", self.work / "case", "--out", out, "--policy-per-rank", policies, "--threads=1", "--quiet", "--pss"]
        printed = succeeded(self.on_hosts(counts, *arguments))
        held = re.findall(r"node \d+ .* PSS after training", printed)
        if len(held) != len(counts):
            raise Failed(f"expected the memory of {len(counts)} nodes:\n{printed}")
        for other in ["local", "shm"]:
            verdict = self.by_itself("compare", self.work / other, out)
            if not verdict.startswith("equal: "):
                raise Failed(verdict)
        compared = 0
        for rank in range(sum(counts)):
            for part in ["cuts", "basis"]:
                for path in (self.work / "local/policy" / part).iterdir():
                    if path.read_bytes() != (policies / f"rank-{rank}" / part / path.name).read_bytes():
                        raise Failed(f"{part}/{path.name} of rank {rank} differs")
                    compared += 1
        print(f"    {verdict.splitlines()[0]}; {compared} files of the policies of {sum(counts)} ranks")
        print("    " + "\n    ".join(held))
        shutil.rmtree(policies)

    def memory(self, counts):
        """Requires one copy of a case's data on each node."""
        data = self.work / "memory"
        self.by_itself("memory", data, "-n2", *LARGE)
        table = succeeded(self.on_hosts(counts, "memory", data))
        copies = {name: float(re.search(rf"^{name}.* ([\d.]+)$", table, re.M)[1]) for name in ["each rank", "one copy a node"]}
        if not (0.95 < copies["each rank"] / sum(counts) < 1.1 and 0.95 < copies["one copy a node"] / len(counts) < 1.1):
            raise Failed(table)
        print("    " + table.strip().replace("\n", "\n    "))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="only cases whose name contains this")
    arguments = parser.parse_args()
    # Built in the same folder as the package by itself.
    os.environ.setdefault("CARGO_TARGET_DIR", str(ROOT / "target"))
    home = peers.install("mpich", MPIS["mpich"][0], ROOT / "target/race")
    training = Training(home, target() / "cobre-nodes")
    cases = Cases(arguments.only)
    for name, counts in HOSTS.items():
        cases.case(f"cobre: {name}", lambda name=name, counts=counts: training.equal(name, counts))
    cases.case("cobre: one node, without MPI", lambda: training.equal("one node", [2]))
    cases.case("cobre: one copy a node", lambda: training.memory([2, 2]))
    print(f"{cases.passed} passed, {len(cases.failed)} failed")
    sys.exit(bool(cases.failed or not cases.passed))


if __name__ == "__main__":
    main()
