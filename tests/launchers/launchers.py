#!/usr/bin/env python3
"""Starts `examples/hello` by the real launchers: mpiexec of Open MPI 4 and 5, MPICH and Intel MPI (from PyPI), and srun, sbatch
and salloc of a Slurm with two nodes on this host (from Debian, unpacked, not installed); torchrun, that of the PATH or Debian's.

The ranks have no variable of ours. Each case says what was started, and what came of it. What is downloaded stays in
target/race and target/launchers.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "benches/race"), str(HERE)]
import peers  # noqa: E402
from slurm import Slurm  # noqa: E402
from torchrun import Torchrun  # noqa: E402

# No case takes longer than some seconds on an idle machine.
LIMIT = 120

# By name: the packages, and the options that let more ranks start than there are processors.
MPIS = {
    "openmpi": (["openmpi"], ["--bind-to", "none", "--map-by", ":oversubscribe"]),
    "openmpi4": (["openmpi<5"], ["--bind-to", "none", "--oversubscribe"]),
    "mpich": (["mpich"], []),
    "impi": (["impi-rt", "impi-devel"], []),
}


class Failed(Exception):
    """A case did not do what it should."""


def run(command, environment, more=None, limit=LIMIT):
    """The status and the output of a command, which ends within the limit with all that it has started."""
    environment = {**environment, "INTRANODE_JOIN_TIMEOUT": "60", **(more or {})}
    process = subprocess.Popen(
        list(map(str, command)), env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise Failed(f"it did not end within {limit} s:\n{output}") from None
    return process.returncode, output


def places(output):
    """`(rank, size)` of all ranks that have joined, sorted."""
    return sorted((int(rank), int(size)) for rank, size in re.findall(r"rank (\d+) of (\d+) is process", output))


def joined(result, jobs):
    """Requires that jobs of these sizes have run, and each has the right sum."""
    status, output = result
    expected = sorted((rank, size) for size in jobs for rank in range(size))
    sums = sorted(int(number) for number in re.findall(r"add up to (\d+)", output))
    right = sorted(size * (size - 1) // 2 for size in jobs)
    if status != 0 or places(output) != expected or sums != right:
        raise Failed(f"expected jobs of {jobs} ranks; status {status}, {places(output)}, sums {sums}:\n{output}")


def refused(result, *told):
    """Requires that no rank has joined, and that an error says this."""
    status, output = result
    missing = [text for text in told if text not in output]
    if status == 0 or places(output) or missing:
        raise Failed(f"expected an error with {told}; status {status}:\n{output}")


class Cases:
    """The cases, counted."""

    def __init__(self, only):
        self.only, self.passed, self.failed = only, 0, []

    def case(self, name, check):
        if self.only not in name:
            return
        try:
            check()
        except Failed as reason:
            self.failed.append(name)
            print(f"FAILED {name}: {reason}", flush=True)
        else:
            self.passed += 1
            print(f"ok     {name}", flush=True)


def mpi_environment(home):
    """What `benches/race` sets for a library, without anything of another launcher."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("INTRANODE_", "SLURM_", "OMPI_", "PMI"))}
    return clean | {
        "PATH": f"{home}/bin:{clean['PATH']}",
        "LD_LIBRARY_PATH": f"{home}/lib",
        "I_MPI_ROOT": str(home),
        # A container's user is root.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def mpiexec(cases, name, program, work):
    packages, options = MPIS[name]
    environment = mpi_environment(peers.install(name, packages, work))
    start = lambda ranks, *command: ["mpiexec", "-n", ranks, *options, *command]
    for ranks in [1, 2, 4, 8]:
        cases.case(f"{name}: {ranks} ranks", lambda: joined(run(start(ranks, program), environment), [ranks]))
    shell = ["sh", "-c", f"{program}; exit $?"]
    cases.case(f"{name}: a shell between", lambda: joined(run(start(3, *shell), environment), [3]))
    twice = ["sh", "-c", f"{program} && {program}"]
    cases.case(f"{name}: two jobs one after the other", lambda: joined(run(start(2, *twice), environment), [2, 2]))
    two = ["sh", "-c", " & ".join(" ".join(map(str, start(3, program))) for _ in range(2)) + " & wait"]
    cases.case(f"{name}: two jobs at once", lambda: joined(run(two, environment), [3, 3]))
    several = start(2, program, ":", "-n", 2, *(options if name == "openmpi4" else []), program)
    cases.case(f"{name}: two programs", lambda: joined(run(several, environment), [4]))
    alone = {"INTRANODE_LAUNCHER": "none"}
    cases.case(f"{name}: not asked", lambda: refused(run(start(1, program), environment, alone), "no launcher has started"))


def slurm_cases(cases, slurm, program, installed):
    environment = slurm.environment
    srun = lambda *options: ["srun", "--quiet", *options]
    go = lambda command, more=None: run(command, environment, more)
    cases.case("slurm: srun on a node", lambda: joined(go(srun("-N1", "-n3", program)), [3]))
    cases.case("slurm: srun with PMI 2", lambda: joined(go(srun("--mpi=pmi2", "-N1", "-n2", program)), [2]))
    refusal = ["SeveralNodes", "ranks: 3"]
    cases.case("slurm: srun on two nodes", lambda: refused(go(srun("-N2", "-n3", program)), *refusal))
    node = {"INTRANODE_SCOPE": "node"}
    cases.case("slurm: a job on each node", lambda: joined(go(srun("-N2", "-n3", program), node), [1, 2]))

    def batch():
        # The script is no rank; what it starts is.
        script = f"{program}; echo status $?; srun -n2 {program}; srun -n3 {program}"
        status, output = go(["sbatch", "--wait", "-N1", "-n3", "-o", slurm.home / "batch.out", "--wrap", script])
        text = (slurm.home / "batch.out").read_text()
        if "no launcher has started" not in text or "status 1" not in text:
            raise Failed(f"expected that the script itself does not join:\n{output}{text}")
        joined((status, text), [2, 3])

    cases.case("slurm: sbatch and its steps", batch)
    steps = f"srun -n2 --overlap {program} & srun -n2 --overlap {program} & wait"
    cases.case("slurm: two steps at once", lambda: joined(go(["salloc", "-N1", "-n4", "sh", "-c", steps]), [2, 2]))
    for name in installed:
        home = peers.install(name, MPIS[name][0], slurm.work)
        inside = mpi_environment(home) | slurm.settings()
        inside["PATH"] += f":{slurm.bin}"
        inside["LD_LIBRARY_PATH"] += f":{slurm.libraries}"
        start = ["mpiexec", "-n", 4, *MPIS[name][1], program]

        def both_named(inside=inside, start=start):
            status, output = run(["salloc", "-N1", "-n4", *start], inside, {"INTRANODE_DEBUG": "1"})
            joined((status, output), [4])
            if "are used, and rank 0 of 1 by those of Slurm" not in output:
                raise Failed(f"expected that both launchers are named:\n{output}")

        cases.case(f"slurm: mpiexec of {name} in an allocation", both_named)
        over = lambda inside=inside, start=start: refused(run(["salloc", "-N2", "-n4", *start], inside), "SeveralNodes", "ranks: 4")
        cases.case(f"slurm: mpiexec of {name} on two nodes", over)


def torchrun_cases(cases, torchrun, program):
    go = lambda ranks, *command: run(torchrun.start(ranks, *command), torchrun.environment)
    for ranks in [1, 3]:
        cases.case(f"torchrun {torchrun.about}: {ranks} ranks", lambda: joined(go(ranks, program), [ranks]))
    two = ["sh", "-c", " & ".join(" ".join(map(str, torchrun.start(2, program))) for _ in range(2)) + " & wait"]
    cases.case(f"torchrun {torchrun.about}: two jobs at once", lambda: joined(run(two, torchrun.environment), [2, 2]))

    def restarted():
        # The first ranks fail once their job has begun, and the agent starts others.
        fails = ["sh", "-c", f'{program}; test "$TORCHELASTIC_RESTART_COUNT" = 1']
        joined(run([*torchrun.start(2, *fails)[:-4], "--max_restarts", 1, "--no_python", *fails], torchrun.environment), [2, 2])

    cases.case(f"torchrun {torchrun.about}: restarted ranks", restarted)


def cobre(cases, work, *given):
    """`cobre-shm run` joins in the same way."""
    program, case = map(Path, given or (target() / "release/cobre-shm", ROOT / "target/launchers/case"))
    if not program.exists():
        print("skipped cobre-shm: cargo build --release --package intranode-cobre builds it")
        return
    if not given:
        shutil.rmtree(case, ignore_errors=True)
        small = ["--iterations", "2", "--stages", "3", "--hydros", "3", "--openings", "2"]
        subprocess.run([program, "case", case, *small], check=True, stderr=subprocess.DEVNULL)
    for name in ["openmpi", "mpich"]:
        label = f"{name}: cobre-shm run"
        if cases.only not in label:
            continue
        environment = mpi_environment(peers.install(name, MPIS[name][0], work))
        out = case.with_name(f"launched-{name}")
        start = ["mpiexec", "-n", 2, *MPIS[name][1], program, "run", case, "--out", out, "--threads", 1]

        def two_ranks(environment=environment, start=start):
            status, output = run(start, environment)
            if status != 0 or "2 rank(s)" not in output:
                raise Failed(f"status {status}:\n{output}")

        cases.case(label, two_ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="only cases whose name contains this")
    parser.add_argument("--program", help="a built examples/hello [default: build it in release]")
    parser.add_argument("--without", nargs="*", default=[], choices=[*MPIS, "slurm", "torchrun"], help="launchers to leave out")
    parser.add_argument("--cobre", nargs=2, metavar=("COBRE-SHM", "CASE"), help="start this, and train this case [default: that of target/release, if it is built, and a small case]")
    arguments = parser.parse_args()
    work = ROOT / "target/race"
    work.mkdir(parents=True, exist_ok=True)
    program = Path(arguments.program or build()).resolve()
    cases = Cases(arguments.only)
    installed = [name for name in MPIS if name not in arguments.without]
    for name in installed:
        mpiexec(cases, name, program, work)
    if "torchrun" not in arguments.without:
        torchrun_cases(cases, Torchrun(ROOT / "target/launchers", mpi_environment(ROOT)), program)
    cobre(cases, work, *(arguments.cobre or []))
    if "slurm" not in arguments.without:
        with Slurm(ROOT / "target/launchers", work) as slurm:
            slurm_cases(cases, slurm, program, installed)
    left = sorted(path.name for path in Path("/dev/shm").glob(f"intranode-{os.geteuid()}-*"))
    print(f"{cases.passed} passed, {len(cases.failed)} failed; names left in /dev/shm: {left or 'none'}")
    if not cases.passed:
        sys.exit(f"no case has {arguments.only!r} in its name")
    sys.exit(bool(cases.failed or left))


def build():
    command = ["cargo", "build", "--quiet", "--locked", "--release", "--example", "hello"]
    subprocess.run(command, cwd=ROOT, check=True)
    return target() / "release/examples/hello"


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


if __name__ == "__main__":
    main()
