"""Open MPI's OpenSHMEM from Debian's packages, for the one-sided operations: PyPI's Open MPI has none.

Where it is not installed, the packages are unpacked under target/race, without root and without touching the system.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jobs
from peers import HERE, Peer, build

NAME = "oshmem"
OPERATIONS = frozenset(["put", "get", "fetch-add", "put-signal"])
PACKAGES = ["openmpi-bin", "libopenmpi-dev"]
# For each rank: the largest cell has 64 MiB.
HEAP = "256M"


def run(*command, **options):
    """What a command prints."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout
    except FileNotFoundError:
        raise jobs.Failed(f"there is no {command[0]}; install {' and '.join(PACKAGES)}") from None
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines() or [f"status {error.returncode}"]
        raise jobs.Failed(f"{' '.join(map(str, command[:3]))}: {lines[-1]}") from None


def unpack(work):
    """The packages' files in a folder of their own, with those of the packages that they need and that are not installed."""
    root, packages = work / NAME / "root", work / NAME / "packages"
    if not (root / "installed").exists():
        shutil.rmtree(work / NAME, ignore_errors=True)
        packages.mkdir(parents=True)
        missing = run("apt-get", "--simulate", "--no-install-recommends", "install", PACKAGES[0])
        names = [*re.findall(r"^Inst (\S+)", missing, re.M), PACKAGES[1]]
        print(f"downloading {' '.join(names)}", file=sys.stderr)
        # Without lists of packages nothing is found: `apt-get update`, as root, brings them.
        run("apt-get", "--quiet", "download", *names, cwd=packages)
        for package in packages.glob("*.deb"):
            run("dpkg", "--extract", package, root)
        (root / "installed").touch()
    return root


def settings_of(home):
    """What Open MPI has to be told where its files are not in the places that it was built for."""
    libraries = {path.parent for path in home.parent.rglob("*.so.*") if path.parent.name != "openmpi3"}
    return {
        "OPAL_PREFIX": f"{home}",
        "OPAL_LIBDIR": f"{next(home.rglob('openmpi/lib'))}",
        "PMIX_INSTALL_PREFIX": f"{next(home.rglob('pmix2'), home)}",
        "LD_LIBRARY_PATH": ":".join(map(str, sorted(libraries))),
        # It has components for networks whose libraries are not there.
        "OMPI_MCA_mca_base_component_show_load_errors": "0",
        "PMIX_MCA_pcompress_base_silence_warning": "1",
    }


def launcher(settings):
    def launch(ranks, fit):
        bind = ["--bind-to", "core"] if fit else ["--bind-to", "core:overload-allowed", "--map-by", ":oversubscribe"]
        idle = ["--mca", "mpi_yield_when_idle", "0" if fit else "1"]
        own = {"SHMEM_SYMMETRIC_SIZE": HEAP, "OMPI_MCA_osc": "^rdma"} | ({} if fit else {"SHMEM_BENCH_YIELD": "1"})
        # A container's user is root; elsewhere these change nothing.
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return ["oshrun", "-n", str(ranks), *bind, *idle], settings | own | root

    return launch


def peer(work):
    """The library, installed, with its program built, after a first run. `jobs.Failed` says why that is not possible."""
    source, program = HERE / "shmem_bench.c", work / "shmem_bench"
    installed = shutil.which("oshcc") and shutil.which("oshrun")
    if installed:
        home, settings = Path(installed).parent.parent, {}
        compiler, options = "oshcc", []
    else:
        home, compiler = unpack(work) / "usr", os.environ.get("CC", "cc")
        header = next(home.rglob("openmpi/include/shmem.h"), None)
        if not header:
            raise jobs.Failed(f"{PACKAGES[1]} has no shmem.h: this Open MPI was built without OpenSHMEM")
        settings = settings_of(home)
        libraries = header.parent.parent / "lib"
        options = [f"-I{header.parent}", f"-L{libraries}", "-loshmem", "-Wl,--allow-shlib-undefined"]
    try:
        build(compiler, source, program, options)
    except (OSError, subprocess.CalledProcessError) as error:
        raise jobs.Failed(f"{source.name} cannot be built: {error}") from None
    about = "OpenSHMEM, spml ucx, bound to cores; if oversubscribed, yielding when idle"
    oshmem = Peer(NAME, "", about, launcher(settings), home=home, bench=program, operations=OPERATIONS)
    command, environment = oshmem.command(2, 2, [program, 0.001, "put:8"])
    jobs.run(command, environment, timeout=60)
    shown = run(f"{home}/bin/oshrun", "--version", env=environment)
    oshmem.version = re.search(r"\d+\.\d+\.\d+", shown)[0]
    return oshmem
