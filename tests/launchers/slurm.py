"""A Slurm of two nodes on this host, from Debian's packages, which are unpacked and not installed."""

import getpass
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PACKAGES = """slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2 libhwloc15 liblua5.1-0 libjson-c5 libyaml-0-2
    libdbus-1-3 libnuma1 liblz4-1 libpam0g libreadline8""".split()
NODES = ["one", "two"]
LIMIT = 60

# No authentication and no limits on processors: all runs as this user, on this host.
CONFIGURATION = """
ClusterName=launchers
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
MailProg=/bin/true
PluginDir={plugins}
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """Runs while it is entered."""

    def __init__(self, home, work):
        self.home, self.work, self.daemons = home, work, []
        self.root = home / "slurm"
        self.bin, self.sbin = self.root / "usr/bin", self.root / "usr/sbin"
        libraries = next(iter(self._unpacked()))
        self.plugins = libraries / "slurm-wlm"
        more = [path for path in (self.root / "lib").glob("*-linux-gnu")]
        self.libraries = ":".join(map(str, [libraries, self.plugins, *more]))
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("INTRANODE_", "SLURM_"))}
        paths = {"PATH": f"{self.bin}:{clean['PATH']}", "LD_LIBRARY_PATH": self.libraries}
        self.environment = clean | paths | self.settings()

    def settings(self):
        """What its programs need besides their paths."""
        return {"SLURM_CONF": str(self.home / "slurm.conf")}

    def _unpacked(self):
        if not (self.root / "unpacked").exists():
            packages = self.home / "packages"
            packages.mkdir(parents=True, exist_ok=True)
            print(f"unpacking {' '.join(PACKAGES)}", file=sys.stderr)
            subprocess.run(["apt-get", "download", "-qq", *PACKAGES], cwd=packages, check=True, stderr=subprocess.DEVNULL)
            for package in packages.glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, self.root], check=True)
            (self.root / "unpacked").touch()
        return (self.root / "usr/lib").glob("*-linux-gnu")

    def __enter__(self):
        ports = free_ports(1 + len(NODES))
        nodes = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=1000"
            for name, port in zip(NODES, ports[1:])
        ]
        (self.home / "state").mkdir(parents=True, exist_ok=True)
        text = CONFIGURATION.format(
            controller=ports[0], user=getpass.getuser(), plugins=self.plugins, home=self.home,
            nodes="\n".join(nodes), names=",".join(NODES),
        )
        (self.home / "slurm.conf").write_text(text)
        # -c: nothing of an earlier run.
        self._start("slurmctld", [self.sbin / "slurmctld-wlm", "-D", "-c"])
        stepd = self.sbin / "slurmstepd-wlm"
        for name in NODES:
            self._start(f"slurmd-{name}", [self.sbin / "slurmd-wlm", "-D", "-N", name, "-d", stepd])
        try:
            self._await_nodes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, name, command):
        with open(self.home / f"{name}.out", "w") as output:
            self.daemons.append(
                subprocess.Popen(list(map(str, command)), env=self.environment, stdout=output, stderr=output)
            )

    def _await_nodes(self):
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            shown = subprocess.run(
                ["sinfo", "--noheader", "--format=%D %t"], env=self.environment, capture_output=True, text=True, timeout=LIMIT
            ).stdout
            if shown.split() == [str(len(NODES)), "idle"]:
                return
            ended = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            if ended:
                raise RuntimeError(f"{ended} ended; {self.home}/*.out says why")
            time.sleep(0.1)
        raise RuntimeError(f"Slurm's nodes are not idle after {LIMIT} s: {shown}; {self.home}/*.out says why")

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def free_ports(count):
    """Ports that nobody listens at, and no two of them the same."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
