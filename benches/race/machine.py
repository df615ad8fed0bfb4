"""The machine on which the results were measured."""

import os
import platform
from pathlib import Path


def describe():
    """The processor, its caches, the memory, the kernel."""
    info = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        info.setdefault(name.strip(), value.strip())
    memory = next(line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    caches = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ["level", "type", "size"])
        caches.append(f"L{level} {kind.lower()} {size}")
    return {
        "processor": info.get("model name", platform.machine()),
        "processors": len(os.sched_getaffinity(0)),
        "virtual": "hypervisor" in info.get("flags", ""),
        "caches": ", ".join(caches),
        "memory_gib": round(int(memory) / 2**20),
        "kernel": platform.release(),
    }


def in_words(machine):
    kind = "virtual processors" if machine["virtual"] else "processors"
    return (
        f"{machine['processors']} {kind} ({machine['processor']}; {machine['caches']}), "
        f"{machine['memory_gib']} GiB of memory, Linux {machine['kernel']}"
    )


def load():
    """The load average of the last minute."""
    return os.getloadavg()[0]
