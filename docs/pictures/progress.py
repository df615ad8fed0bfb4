#!/usr/bin/env python3
"""Makes the picture of `cobre_shm.Progress` anew, from a training of a made-up case with 4 workers.

    make cobre-python PYTHON=--picture

Needs rich, and the program `cobre-shm` where cobre_shm finds it.
"""

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import cobre_shm
from cobre_shm._run import program
from rich.console import Console

PICTURE = Path(__file__).with_name("progress.svg")


def main() -> None:
    # What is no terminal gets the table once, when the training has ended.
    console = Console(record=True, width=84, file=io.StringIO())
    with tempfile.TemporaryDirectory(prefix="cobre-shm-picture-") as folder:
        case = Path(folder) / "case"
        made = [program(), "case", str(case), "--iterations", "12", "--hydros", "12", "--stages", "24", "--openings", "10"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        console.print("[bold]with[/] cobre_shm.Progress() [bold]as[/] progress:")
        console.print("    cobre_shm.run([green]'case'[/], num_workers=[cyan]4[/], on_iteration=progress)", highlight=False)
        with cobre_shm.Progress(console) as progress:
            result = cobre_shm.run(case, Path(folder) / "out", num_workers=4, threads=1, on_iteration=progress)
    if len(result["workers"]) != 4:
        sys.exit(f"the training had {len(result['workers'])} workers, not 4")
    picture = console.export_svg(title="python", unique_id="progress")
    # Fonts of the reader's machine: a picture fetches nothing.
    picture = re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.S).replace("Fira Code", "DejaVu Sans Mono")
    PICTURE.write_text(picture)
    print(PICTURE)


if __name__ == "__main__":
    main()
