"""PyTorch's `torchrun`: that of the PATH, or else Debian's, whose packages are unpacked and not installed.

PyTorch's packages on PyPI for Linux on x86-64 bring CUDA, some gigabytes. Debian's is for processors alone: 140 MB to download,
580 MB unpacked, most of it libraries of libraries. It is for Debian's own Python.
"""

import shutil
import subprocess
import sys

PACKAGE = "python3-torch"
PYTHON = "/usr/bin/python3"

# Without these two, which no rank has, PyTorch 1.13 fails under Python 3.11, in whose enumerations it does not find "nothing".
WORKAROUND = ["--redirects", "9:1", "--tee", "9:1"]


class Torchrun:
    """How it is started, in which environment."""

    def __init__(self, home, environment):
        self.home, self.environment, self.about = home / "torch", environment, None
        if shutil.which("torchrun"):
            self.command, self.about = ["torchrun"], "of the PATH"
            return
        self._unpack()
        libraries = next((self.home / "usr/lib").glob("*-linux-gnu"))
        folders = [libraries, self.home / "usr/lib", libraries / "blas", libraries / "lapack", *(self.home / "lib").glob("*-linux-gnu")]
        self.environment = environment | {
            "LD_LIBRARY_PATH": ":".join(map(str, folders)),
            "PYTHONPATH": str(self.home / "usr/lib/python3/dist-packages"),
        }
        self.command = [PYTHON, "-m", "torch.distributed.run", *WORKAROUND]
        version = [PYTHON, "-c", "import torch, platform; print(torch.__version__, 'of Debian, Python', platform.python_version())"]
        self.about = subprocess.run(
            version, env=self.environment, check=True, capture_output=True, text=True, timeout=120
        ).stdout.strip()

    def start(self, ranks, *program):
        # With underscores: the names that all versions know.
        return [*self.command, "--standalone", "--nproc_per_node", ranks, "--no_python", *program]

    def _unpack(self):
        if (self.home / "unpacked").exists():
            return
        plan = ["apt-get", "install", "--simulate", "--no-install-recommends", PACKAGE]
        lines = subprocess.run(plan, check=True, capture_output=True, text=True).stdout.splitlines()
        packages = [line.split()[1] for line in lines if line.startswith("Inst ")]
        if PACKAGE not in packages:
            raise RuntimeError(f"{PACKAGE} is installed, and there is no torchrun on the PATH")
        folder = self.home / "packages"
        folder.mkdir(parents=True, exist_ok=True)
        print(f"unpacking {PACKAGE} and {len(packages) - 1} packages that it needs", file=sys.stderr)
        subprocess.run(["apt-get", "download", "-qq", *packages], cwd=folder, check=True, stderr=subprocess.DEVNULL)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, self.home], check=True)
        shutil.rmtree(folder)
        (self.home / "unpacked").touch()
