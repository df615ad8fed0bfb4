"""The libraries of the race: how each is installed, and started with its best known settings."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# The packages of each library, the compiler's wrapper in it, and the package that tells the version.
PACKAGES = {
    "openmpi": (["openmpi"], "mpicc", "openmpi"),
    "mpich": (["mpich"], "mpicc", "mpich"),
    "impi": (["impi-rt", "impi-devel"], "mpigcc", "impi-rt"),
}


@dataclass
class Peer:
    """One library with one choice of settings."""

    name: str
    version: str
    about: str
    # From the number of ranks and whether each can have a core: what comes before the program, and the environment.
    launch: Callable[[int, bool], tuple[list[str], dict[str, str]]]
    home: Path | None = None
    bench: Path | None = None

    def command(self, ranks, cores, program):
        """The command line that starts `program` in so many processes, and its environment."""
        before, settings = self.launch(ranks, ranks <= cores)
        environment = dict(os.environ)
        if self.home:
            environment["PATH"] = f"{self.home}/bin:{environment['PATH']}"
            environment["LD_LIBRARY_PATH"] = f"{self.home}/lib"
            environment["I_MPI_ROOT"] = f"{self.home}"
        return [*before, *map(str, program)], environment | settings


def open_mpi(more=()):
    def launch(ranks, fit):
        bind = ["--bind-to", "core", "--map-by", "core"] if fit else ["--bind-to", "none", "--map-by", ":oversubscribe"]
        idle = ["--mca", "mpi_yield_when_idle", "0" if fit else "1"]
        transport = ["--mca", "pml", "ob1", "--mca", "btl", "self,sm"]
        # A container's user is root; elsewhere these change nothing.
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return ["mpiexec", "-n", str(ranks), *bind, *transport, *idle, *more], root

    return launch


def mpich(more=None):
    def launch(ranks, fit):
        polls = {} if fit else {"MPIR_CVAR_POLLS_BEFORE_YIELD": "0"}
        bind = ["-bind-to", "core"] if fit else []
        return ["mpiexec", "-n", str(ranks), *bind], polls | (more or {})

    return launch


def impi(more=None):
    def launch(ranks, fit):
        crowded = {"I_MPI_PIN": "0", "I_MPI_WAIT_MODE": "1", "I_MPI_THREAD_YIELD": "2"}
        settings = {"I_MPI_FABRICS": "shm"} | ({"I_MPI_PIN": "1"} if fit else crowded)
        return ["mpiexec", "-n", str(ranks)], settings | (more or {})

    return launch


RELEASE_GATHER = {f"MPIR_CVAR_{op}_POSIX_INTRA_ALGORITHM": "release_gather" for op in ["BARRIER", "BCAST", "ALLREDUCE"]}

# Name, library, launch, what the settings are. A cell's opponent is whichever is fastest in it.
VARIANTS = [
    ("openmpi", "openmpi", open_mpi(), "pml ob1, btl sm (single copies by CMA), bound to cores, or yielding when idle"),
    ("openmpi-tuned", "openmpi", open_mpi(["--mca", "coll", "^han"]), "the same with coll tuned in place of han"),
    ("openmpi-sm", "openmpi", open_mpi(["--mca", "coll_sm_priority", "100"]), "the same with coll sm first"),
    ("mpich", "mpich", mpich(), "ch4 with its shared memory, bound to cores, or yielding at every poll"),
    ("mpich-rg", "mpich", mpich(RELEASE_GATHER), "the same with release-gather collectives"),
    ("impi", "impi", impi(), "fabric shm, pinned, or wait mode and yielding"),
    ("impi-cma", "impi", impi({"I_MPI_SHM_CMA": "1"}), "the same with single copies by CMA"),
]

# One for each library, best in most cells.
QUICK = ["openmpi", "mpich", "impi"]


def install(name, packages, work):
    """Puts packages into a virtual environment of their own (the libraries share file names), unless it is there."""
    home = work / f"venv-{name}"
    if not (home / "installed").exists():
        shutil.rmtree(home, ignore_errors=True)
        print(f"installing {' '.join(packages)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [home / "bin/pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *packages], check=True)
        (home / "installed").touch()
    return home


def version_of(home, package):
    show = [home / "bin/pip", "--disable-pip-version-check", "show", package]
    lines = subprocess.run(show, check=True, capture_output=True, text=True).stdout.splitlines()
    return next(line.split(": ")[1] for line in lines if line.startswith("Version: "))


def build(compiler, source, program, options=(), environment=None):
    """Compiles a C program, unless it is newer than its source."""
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        command = [compiler, "-O2", "-Wall", source, "-o", program, *options]
        subprocess.run(list(map(str, command)), env=environment, check=True)
    return program


def others(names, work):
    """The peers of these names, installed, with `mpi_bench` built for each."""
    peers = []
    for name, library, launch, about in VARIANTS:
        if name not in names:
            continue
        packages, wrapper, main_package = PACKAGES[library]
        home = install(library, packages, work)
        peer = Peer(name, version_of(home, main_package), about, launch, home)
        environment = peer.command(1, 1, [])[1]
        compiler = home / "bin" / wrapper
        peer.bench = build(compiler, HERE / "mpi_bench.c", work / f"mpi_bench-{library}", environment=environment)
        peers.append(peer)
    return peers


def intranode(program=None):
    """This library: its launcher, built in release unless it is given."""
    if program is None:
        build = ["cargo", "build", "--locked", "--release", "--package", "intranode-cli"]
        subprocess.run(build, cwd=ROOT, check=True)
        program = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/intranode"
    shown = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout

    def launch(ranks, fit):
        return [str(program), "run", "-n", str(ranks), *(["--bind"] if fit else []), "--"], {}

    about = "the launcher's --bind while there is a core for each rank; nothing else"
    return Peer("intranode", shown.split()[1], about, launch, bench=program)
