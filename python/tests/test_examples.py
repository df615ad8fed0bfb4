"""The example scripts, and the notebooks, are run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

PYTHON = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("kind", ["structured array", "Arrow table", "DataFrame"])
def test_a_shared_table(kind: str, tmp_path: Path) -> None:
    needed = {"structured array": [], "Arrow table": ["pyarrow"], "DataFrame": ["pyarrow", "pandas"]}[kind]
    for name in needed:
        pytest.importorskip(name)
    # What is not needed cannot be imported.
    for name in {"pyarrow", "pandas"} - set(needed):
        (tmp_path / f"{name}.py").write_text("raise ImportError")
    script = PYTHON / "examples" / "shared_table.py"
    done = subprocess.run(
        [sys.executable, "-m", "intranode", "-n", "3", str(script), "10000"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    mean = numpy.sqrt(numpy.arange(10_000)).mean()
    assert done.stdout.endswith(f"{kind} of 10000 rows, once for 3 ranks: mean inflow {mean:.6f}\n"), done.stdout


@pytest.mark.parametrize("notebook", sorted((PYTHON / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook(notebook: Path) -> None:
    """Its cells run, and print what the file says."""
    nbclient: Any = pytest.importorskip("nbclient")
    nbformat: Any = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    page = nbformat.read(notebook, as_version=4)
    said = [[_text(output) for output in cell.get("outputs", [])] for cell in page.cells]
    nbclient.NotebookClient(page, timeout=60, kernel_name="python3").execute()
    assert [[_text(output) for output in cell.get("outputs", [])] for cell in page.cells] == said
    assert any(said), "a notebook without output shows nothing"


def _text(output: Any) -> str:
    return str(output["text"] if "text" in output else output.get("data", {}).get("text/plain", ""))
