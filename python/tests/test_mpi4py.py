"""mpi4py's own tests over `intranode.MPI`. They come from its source distribution, and are never kept in the repository.

`INTRANODE_WRITE_TABLES=1` writes the table of docs/python.md.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from intranode import Communicator
from job import run

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "python.md"
VERSION = "4.1.2"
SIZES = [1, 2, 3, 4]

# Test functions that need what is not there.
MISSING = {
    "test_cco_obj": set[str](),
    "test_cco_buf": set[str](),
    "test_cco_vec": {"testAlltoallw", "testAlltoallw2", "testAlltoallwBottom"},
    "test_cco_nb_buf": set[str](),
    "test_cco_nb_vec": {"testAlltoallw", "testAlltoallw2", "testAlltoallwBottom"},
    "test_op": set[str](),
    "test_p2p_obj": {"testCommLock"},
    "test_p2p_buf": {"testConstructor"},
    "test_p2p_obj_matched": set[str](),
    "test_p2p_buf_matched": set[str](),
}
WHY = {
    "testAlltoallw": "a datatype for each rank",
    "testCommLock": "a private table of mpi4py",
    "testConstructor": "handles of other libraries",
}


def _folder() -> Path:
    """The tests of mpi4py, beside the virtual environment's packages."""
    folder = Path(sys.prefix) / f"mpi4py-{VERSION}"
    if not (folder / "test").is_dir():
        with tempfile.TemporaryDirectory() as download:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", "mpi4py", "--no-deps"]
            subprocess.run([*command, "--dest", download, f"mpi4py=={VERSION}"], check=True, timeout=300)
            with tarfile.open(Path(download) / f"mpi4py-{VERSION}.tar.gz") as archive:
                archive.extractall(sys.prefix, filter="data")
    return folder / "test"


@cache
def _results(size: int) -> dict[str, dict[str, Any]]:
    """What has become of each file. All run in one job: an interpreter takes longer to start than most of them take."""
    command = [sys.executable, "-m", "intranode", "--timeout", "60", "-n", str(size)]
    done = subprocess.run(
        [*command, str(HERE / "mpi4py_rank.py"), str(_folder()), *MISSING],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [line.rpartition("\0")[2] for line in done.stdout.splitlines() if "\0" in line]
    found = {result["module"]: result for result in map(json.loads, lines)}
    assert list(found) == list(MISSING), f"{size} ranks: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return found


def _result(module: str, size: int) -> dict[str, Any]:
    return _results(size)[module]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("module", MISSING)
def test_of_mpi4py(module: str, size: int) -> None:
    result = _result(module, size)
    unexpected = {
        name: why for name, why in result["failed"].items() if name.rpartition(".")[2] not in MISSING[module]
    }
    assert not unexpected
    assert result["run"] > len(result["failed"])


def names(_: Communicator, path: str) -> list[str]:
    """The functions whose arguments have other names than in this stub."""
    from intranode import MPI

    def arguments(function: ast.FunctionDef) -> list[str]:
        given = function.args
        return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs) if each.arg not in ("self", "cls")]

    module = ast.parse(Path(path).read_text())
    classes = [each for each in module.body if isinstance(each, ast.ClassDef) and hasattr(MPI, each.name)]
    places: list[tuple[str, Any, ast.AST]] = [("", MPI, module)]
    places += [(f"{each.name}.", getattr(MPI, each.name), each) for each in classes]
    wrong, number = [], 0
    for prefix, where, theirs in places:
        for each in ast.iter_child_nodes(theirs):
            if isinstance(each, ast.FunctionDef) and not each.name.startswith("__") and hasattr(where, each.name):
                try:
                    own = [name for name in inspect.signature(getattr(where, each.name)).parameters if name != "self"]
                except ValueError:
                    continue  # of memoryview
                number += 1
                if own[: len(arguments(each))] != arguments(each):
                    wrong.append(prefix + each.name)
    assert number > 100
    return wrong


def test_arguments_have_the_names_of_mpi4py() -> None:
    stub = _folder().parent / "src" / "mpi4py" / "MPI.pyi"
    assert run("test_mpi4py:names", 1, str(stub)) == [["Comm.Create_keyval"]]


def test_the_table_is_that_of_the_page() -> None:
    lines = ["| file | 1 rank | 2 ranks | 3 ranks | 4 ranks | without |", "| --- | --- | --- | --- | --- | --- |"]
    for module, missing in MISSING.items():
        cells = []
        for size in SIZES:
            result = _result(module, size)
            cells.append(f"{result['run'] - result['skipped'] - len(result['failed'])} of {result['run']}")
        without = ", ".join(f"`{name}` ({WHY[name]})" if name in WHY else f"`{name}`" for name in sorted(missing))
        lines.append(f"| `{module}` | {' | '.join(cells)} | {without} |")
    table = "\n".join(lines)
    text = PAGE.read_text()
    written = re.sub(
        r"(<!-- table of mpi4py's tests -->\n).*?(\n<!-- end -->)", lambda found: found[1] + table + found[2], text, flags=re.S
    )
    if os.environ.get("INTRANODE_WRITE_TABLES"):
        PAGE.write_text(written)
    assert table in text or os.environ.get("INTRANODE_WRITE_TABLES"), f"docs/python.md has another table than\n{table}"
