#!/usr/bin/env python3
"""Starts `examples/equal` on several nodes of this host: MPICH's mpiexec with hosts that are forked here, and mpiexec of MPICH and
Open MPI in an allocation of a Slurm with two nodes.

Each rank compares what it gets bit for bit with a fold of its own over all ranks. The libraries come from PyPI, Slurm from Debian,
unpacked; what is downloaded stays in target/race and target/launchers.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/launchers"), str(ROOT / "benches/race")]
import peers  # noqa: E402
from launchers import MPIS, Cases, Failed, mpi_environment, run, target  # noqa: E402
from slurm import Slurm  # noqa: E402

# By name: the ranks of the nodes.
HOSTS = {"two nodes": [3, 2], "three nodes": [2, 1, 2], "four nodes": [1, 2, 3, 2], "a node a rank": [1, 1, 1, 1], "one node": [3]}


def equal(result, counts):
    """Requires that all ranks have compared, on as many nodes."""
    status, output = result
    lines = re.findall(r"rank (\d+) of (\d+) on node (\d+) of (\d+): (\d+) values have the same bits", output)
    ranks = sum(counts)
    nodes = [node for node, count in enumerate(counts) for _ in range(count)]
    expected = [(str(rank), str(ranks), str(nodes[rank]), str(len(counts))) for rank in range(ranks)]
    if status != 0 or sorted(line[:4] for line in lines) != sorted(expected) or len({line[4] for line in lines}) != 1:
        raise Failed(f"expected {ranks} ranks on nodes of {counts}; status {status}:\n{output}")


def told(result, texts):
    """Requires that each of these ranks was told so."""
    _, output = result
    for rank, text in texts.items():
        line = re.search(rf"rank {rank} was told after .*", output)
        if not line or not re.search(text, line[0]):
            raise Failed(f"expected that rank {rank} is told {text!r}:\n{output}")


def by_from_env(result, counts, way):
    """Requires the same after from_env, in this way."""
    equal(result, counts)
    ways = re.findall(r"rank \d+: (.*MPI)", result[1])
    if ways != [way] * sum(counts):
        raise Failed(f"expected {sum(counts)} ranks {way}:\n{result[1]}")


def one_copy(result, counts, megabytes):
    """Requires that the ranks of each node have the data once."""
    status, output = result
    held = [int(found) for found in re.findall(r"node \d+: (\d+) MiB for", output)]
    # Shares of pages are rounded down, and what the transport has touched meanwhile counts too.
    if status != 0 or len(held) != len(counts) or any(not 0.95 < each / megabytes < 1.5 for each in held):
        raise Failed(f"expected {megabytes} MiB on each of {len(counts)} nodes; status {status}:\n{output}")
    print("    " + "; ".join(re.findall(r"node \d+: .*", output)))


def build(name, home, example="equal"):
    """The example, with the C shim of this library."""
    place = target() / "nodes" / name
    command = ["cargo", "build", "--quiet", "--locked", "--release", "--package", "intranode-mpi", "--example", example]
    environment = mpi_environment(home) | {"MPICC": f"{home}/bin/mpicc", "CARGO_TARGET_DIR": str(place)}
    subprocess.run(command, cwd=ROOT, check=True, env=environment)
    return place / "release/examples" / example


def lint(home):
    """What the workspace's lint leaves out, since it needs an MPI."""
    environment = mpi_environment(home) | {"MPICC": f"{home}/bin/mpicc", "RUSTDOCFLAGS": "--deny warnings"}
    package = ["--locked", "--package", "intranode-mpi"]
    for command in [["clippy", *package, "--all-targets", "--", "--deny", "warnings"], ["doc", *package, "--no-deps"]]:
        subprocess.run(["cargo", *command], cwd=ROOT, check=True, env=environment)


def mpich(cases, program, environment):
    def start(counts, *command):
        hosts = ",".join(f"node{number}:{count}" for number, count in enumerate(counts))
        return run(["mpiexec", "-launcher", "fork", "-hosts", hosts, "-n", sum(counts), *command], environment)

    def equals(counts, *arguments):
        return start(counts, program, *arguments)

    def outlived(counts, *arguments):
        # In a shell that outlives it: the launcher kills all as soon as it finds that one has ended, perhaps before they are told.
        return start(counts, "sh", "-c", '"$0" "$@"; sleep 1', program, *arguments)

    def killed(what):
        told(outlived([3, 2], what, 1), dict.fromkeys([0, 2, 3, 4], r"rank 1 \(process \d+\) has died"))

    for name, counts in HOSTS.items():
        cases.case(f"mpich: {name}", lambda counts=counts: equal(equals(counts), counts))
    for name, way in {"two nodes": "over MPI", "one node": "without MPI"}.items():
        counts = HOSTS[name]
        cases.case(f"mpich: {name}, by from_env", lambda counts=counts, way=way: by_from_env(equals(counts, "from-env"), counts, way))
    cases.case("mpich: one copy a node", lambda: one_copy(equals([3, 2], "pss", 64), [3, 2], 64))
    cases.case("mpich: a rank is killed", lambda: killed("die"))
    late, node = "rank 3 did not arrive", "node 1 .* did not come"
    cases.case(
        "mpich: a leader is frozen",
        lambda: told(equals([3, 2], "freeze", 3), {4: late} | dict.fromkeys([0, 1, 2], node)),
    )
    cases.case(
        "mpich: a leader is frozen, and the time-out is short",
        lambda: told(equals([3, 2], "freeze-soon", 3), {4: late} | dict.fromkeys([0, 1, 2], node)),
    )
    cases.case("mpich: a rank is frozen", lambda: told(equals([3, 2], "freeze", 1), dict.fromkeys([0, 2, 3, 4], "rank 1 did not arrive")))
    cases.case("mpich: a rank is killed, calls are tested", lambda: killed("die-started"))
    cases.case(
        "mpich: a leader is frozen, calls are tested",
        lambda: told(equals([3, 2], "freeze-started", 3), {4: late} | dict.fromkeys([0, 1, 2], node)),
    )


    cases.case(
        "mpich: a hook panics while a leader waits",
        lambda: told(equals([1, 2], "panic", 0), dict.fromkeys([1, 2], "rank 1 .*its thread panicked")),
    )
    cases.case(
        "mpich: a leader is late in a fold, and another one is done",
        lambda: told(equals([1, 1, 1], "late-fold", 1), {2: "node 1 .* did not come"}),
    )
    cases.case(
        "mpich: a leader aborts in a fold",
        lambda: told(outlived([2, 2, 1], "abort-in-fold", 2), dict.fromkeys([3, 4], "rank 2 .*code 3")),
    )
    cases.case("mpich: ranks that MPI does not connect", lambda: not_connected(program, environment))


def not_connected(program, environment):
    """Ranks of a launcher that MPI does not know: each is alone in its world."""
    launched = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "not-connected"}
    status, output = run([program, "from-env"], environment | launched)
    if status == 0 or "NotConnected { ranks: 4, connected: 1 }" not in output:
        raise Failed(f"expected that 1 of 4 ranks is connected; status {status}:\n{output}")


def bench(program, environment):
    """Prints the tables of docs/nodes.md. Nothing else should run meanwhile."""
    for ranks in [2, 4]:
        command = ["mpiexec", "-launcher", "fork", "-hosts", f"node0:{ranks},node1:{ranks}", "-n", 2 * ranks, program]
        # MPICH's ranks poll without yielding: with four times as many as processors its part takes minutes.
        status, output = run(command, environment, limit=900)
        print(output, flush=True)
        if status != 0:
            sys.exit(status)


def in_slurm(cases, slurm, name, program):
    home = peers.install(name, MPIS[name][0], slurm.work)
    inside = mpi_environment(home) | slurm.settings()
    inside["PATH"] += f":{slurm.bin}"
    inside["LD_LIBRARY_PATH"] += f":{slurm.libraries}"
    command = ["salloc", "-N2", "-n4", "--ntasks-per-node=2", "mpiexec", "-n", 4, *MPIS[name][1], program]
    cases.case(f"slurm: mpiexec of {name} on two nodes", lambda: equal(run(command, inside), [2, 2]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="only cases whose name contains this")
    parser.add_argument("--without", nargs="*", default=[], choices=["openmpi", "slurm"], help="what to leave out")
    parser.add_argument("--bench", action="store_true", help="measure the calls beside those of MPICH alone, and nothing else")
    arguments = parser.parse_args()
    work = ROOT / "target/race"
    work.mkdir(parents=True, exist_ok=True)
    if arguments.bench:
        home = peers.install("mpich", MPIS["mpich"][0], work)
        return bench(build("mpich", home, "beside_mpi"), mpi_environment(home))
    cases = Cases(arguments.only)
    names = [name for name in ["mpich", "openmpi"] if name not in arguments.without]
    homes = {name: peers.install(name, MPIS[name][0], work) for name in names}
    lint(homes["mpich"])
    programs = {name: build(name, home) for name, home in homes.items()}
    mpich(cases, programs["mpich"], mpi_environment(homes["mpich"]))
    if "slurm" not in arguments.without:
        with Slurm(ROOT / "target/launchers", work) as slurm:
            for name, program in programs.items():
                in_slurm(cases, slurm, name, program)
    left = sorted(path.name for path in Path("/dev/shm").glob("intranode-mpi-*"))
    print(f"{cases.passed} passed, {len(cases.failed)} failed; names left in /dev/shm: {left or 'none'}")
    if not cases.passed:
        sys.exit(f"no case has {arguments.only!r} in its name")
    sys.exit(bool(cases.failed or left))


if __name__ == "__main__":
    main()
