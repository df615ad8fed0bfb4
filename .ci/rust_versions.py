#!/usr/bin/env python3
"""Reads `cargo metadata` and fails if a published package depends on one that needs a newer Rust than argument 1."""

import json
import sys


def number(version):
    parts = [int(part) for part in version.split(".")]
    return parts + [0] * (3 - len(parts))


def is_used(dependency):
    return any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])


def dependencies(metadata):
    """The ids of the published packages and of their dependencies, without those of tests."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = set(metadata["workspace_members"])
    # `publish` is a list of registries: none where a package is not published.
    waiting = [package["id"] for package in metadata["packages"] if package["id"] in members and package["publish"] != []]
    found = set()
    while waiting:
        package = waiting.pop()
        if package not in found:
            found.add(package)
            waiting += [dependency["pkg"] for dependency in nodes[package]["deps"] if is_used(dependency)]
    return found


def main(oldest):
    metadata = json.load(sys.stdin)
    found = dependencies(metadata)
    packages = [package for package in metadata["packages"] if package["id"] in found]
    newer = [
        f"{package['name']} {package['version']} needs Rust {package['rust_version']}"
        for package in packages
        if package["rust_version"] and number(package["rust_version"]) > number(oldest)
    ]
    silent = sum(package["rust_version"] is None for package in packages)
    print(f"Rust {oldest}: {len(packages)} packages, of which {silent} do not say what they need")
    return "\n".join(newer) or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
