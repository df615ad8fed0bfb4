#!/usr/bin/env python3
"""How each MPI library that `make race` has installed runs mpi_calls.c between two ranks.

Prints a line of JSON for each: its name, version, command and environment; or why it is left out. It installs nothing.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "race"))

import peers  # noqa: E402

LIBRARIES = ["openmpi", "mpich", "impi"]


def described(name, work):
    """One library."""
    if not (work / f"venv-{name}" / "installed").exists():
        return {"name": name, "missing": "it is not installed: `make race` does that"}
    try:
        [peer] = peers.others([name], work, "../endpoint/mpi_calls.c")
        command, environment = peer.command(2, len(os.sched_getaffinity(0)), [peer.bench])
    except (subprocess.CalledProcessError, OSError) as error:
        return {"name": name, "missing": f"it cannot be used: {error}"}
    changed = {key: value for key, value in environment.items() if os.environ.get(key) != value}
    return {"name": name, "version": peer.version, "command": command, "environment": changed}


def main():
    work = Path(os.environ.get("CARGO_TARGET_DIR", peers.ROOT / "target")) / "race"
    for name in LIBRARIES:
        print(json.dumps(described(name, work)))


main()
