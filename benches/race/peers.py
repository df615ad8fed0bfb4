"""The libraries of the race: how each is installed, and started with its best known settings."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# The packages of each library, its compiler wrapper, and the package with its version.
PACKAGES = {
    "openmpi": (["openmpi"], "mpicc", "openmpi"),
    "mpich": (["mpich"], "mpicc", "mpich"),
    "impi": (["impi-rt", "impi-devel"], "mpigcc", "impi-rt"),
}


@dataclass
class Peer:
    """A library with its settings."""

    name: str
    version: str
    about: str
    # From the number of ranks and whether each has a core: the command before the program, and the environment.
    launch: Callable[[int, bool], tuple[list[str], dict[str, str]]]
    # Where it takes part: with a core for each rank (True), with more ranks than cores (False).
    where: frozenset[bool] = frozenset([True, False])
    home: Path | None = None
    bench: Path | None = None
    # What it can do; `None`: everything.
    operations: frozenset[str] | None = None
    # Of this library, which `intranode bench` measures: where payloads lie.
    memory: str | None = None
    # How it is measured, where it brings its own program: no rows for what that cannot measure.
    measure: Callable | None = None

    def command(self, ranks, cores, program):
        """The command line that starts `ranks` processes of `program`, and its environment."""
        before, settings = self.launch(ranks, ranks <= cores)
        environment = dict(os.environ)
        if self.home:
            environment["PATH"] = f"{self.home}/bin:{environment['PATH']}"
            environment["LD_LIBRARY_PATH"] = f"{self.home}/lib"
            environment["I_MPI_ROOT"] = f"{self.home}"
        return [*before, *map(str, program)], environment | settings


def open_mpi(more=()):
    def launch(ranks, fit):
        oversubscribed = ["--bind-to", "core:overload-allowed", "--map-by", ":oversubscribe"]
        bind = ["--bind-to", "core", "--map-by", "core"] if fit else oversubscribed
        idle = ["--mca", "mpi_yield_when_idle", "0" if fit else "1"]
        transport = ["--mca", "pml", "ob1", "--mca", "btl", "self,sm"]
        # A container's user is root; elsewhere these change nothing.
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return ["mpiexec", "-n", str(ranks), *bind, *transport, *idle, *more], root

    return launch


def mpich(more=None):
    def launch(ranks, fit):
        # Its own shared memory yields the processor too late: a call takes some milliseconds.
        oversubscribed = {"NOLOCAL": "1", "POLLS_BEFORE_YIELD": "1", "ENABLE_HEAVY_YIELD": "1"}
        settings = {} if fit else {f"MPIR_CVAR_{name}": value for name, value in oversubscribed.items()}
        return ["mpiexec", "-n", str(ranks), "-bind-to", "core"], settings | (more or {})

    return launch


def impi(more=None):
    def launch(ranks, fit):
        return ["mpiexec", "-n", str(ranks)], {"I_MPI_FABRICS": "shm"} | (more or {})

    return launch


SETTING = "MPIR_CVAR_{}_POSIX_INTRA_ALGORITHM"
RELEASE_GATHER = {SETTING.format(operation): "release_gather" for operation in ["BARRIER", "BCAST", "ALLREDUCE"]}
WAIT_MODE = {"I_MPI_PIN": "0", "I_MPI_WAIT_MODE": "1"}
FIT, OVERSUBSCRIBED = {True}, {False}

# Name, library, launch, description of the settings, and where they are used: with a core for each rank, with more ranks
# than cores. In each cell we compare with the fastest.
VARIANTS = [
    ("openmpi", "openmpi", open_mpi(), "pml ob1, btl sm with CMA, bound to cores; if oversubscribed, yielding when idle", FIT | OVERSUBSCRIBED),
    ("openmpi-tuned", "openmpi", open_mpi(["--mca", "coll", "^han"]), "the same, coll tuned", FIT | OVERSUBSCRIBED),
    ("openmpi-sm", "openmpi", open_mpi(["--mca", "coll_sm_priority", "100"]), "the same, coll sm", FIT),
    ("openmpi-basic", "openmpi", open_mpi(["--mca", "coll", "^han,tuned"]), "the same, coll basic", OVERSUBSCRIBED),
    ("mpich", "mpich", mpich(), "bound to cores, ch4's own shared memory; if oversubscribed, UCX, yielding at every poll", FIT | OVERSUBSCRIBED),
    ("mpich-rg", "mpich", mpich(RELEASE_GATHER), "the same, release-gather collectives", FIT),
    ("impi", "impi", impi(), "fabric shm, pinned", FIT | OVERSUBSCRIBED),
    ("impi-icx", "impi", impi({"I_MPI_SHM": "icx"}), "the same, transport icx", FIT | OVERSUBSCRIBED),
    ("impi-wait", "impi", impi(WAIT_MODE), "fabric shm, not pinned, wait mode", OVERSUBSCRIBED),
]
# One for each library, the fastest in most cells.
QUICK = ["openmpi", "mpich", "impi", "ucx"]


def install(name, packages, work):
    """Puts packages into a virtual environment of their own (the libraries share file names), unless it exists."""
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


def cargo(package, program):
    """A program of this repository, built in release."""
    build = ["cargo", "build", "--quiet", "--locked", "--release", "--package", package]
    subprocess.run(build, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / program


def others(names, work, source="mpi_bench.c"):
    """The peers of these names, installed, with a program over MPI built for each."""
    peers = []
    for name, library, launch, about, where in VARIANTS:
        if name not in names:
            continue
        packages, wrapper, main_package = PACKAGES[library]
        home = install(library, packages, work)
        peer = Peer(name, version_of(home, main_package), about, launch, frozenset(where), home)
        environment = peer.command(1, 1, [])[1]
        compiler = home / "bin" / wrapper
        source_path = HERE / source
        peer.bench = build(compiler, source_path, work / f"{source_path.stem}-{library}", environment=environment)
        peers.append(peer)
    return peers


OURS, OURS_SHARED = "intranode", "intranode-shared"


def intranode(program=None):
    """This library: its launcher, built in release unless a path is given."""
    program = program or cargo("intranode-cli", "intranode")
    shown = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout

    def launch(ranks, fit):
        return [str(program), "run", "-n", str(ranks), "--bind", "--"], {}

    about = "the launcher's --bind, nothing else"
    return Peer(OURS, shown.split()[1], about, launch, bench=program, memory="private")


def shared(ours, operations):
    """This library, with payloads in symmetric objects."""
    about = "the same, payloads in memory that all ranks map"
    return replace(ours, name=OURS_SHARED, about=about, memory="shared", operations=frozenset(operations))
