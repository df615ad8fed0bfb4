"""Cobre from Python: a made-up case, whose results are compared with those of Cobre's own backend, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import cobre_shm

LIMIT = 120.0


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cobre") / "case"
    make(folder, "--iterations", "6")
    return folder


def make(folder: Path, *options: str) -> None:
    size = ["--hydros", "3", "--thermals", "2", "--stages", "4"]
    subprocess.run([cobre_shm.program(), "case", str(folder), *size, *options], check=True, timeout=LIMIT)


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


def all_end(pids: list[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, f"a process still runs after {seconds} s"
        time.sleep(0.005)


def test_the_same_bits_as_cobres_own_backend(case: Path, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    own = cobre_shm.run(case, tmp_path / "local", backend="local", threads=1)
    for workers in (1, 3):
        events.clear()
        out = tmp_path / f"shm-{workers}"
        result = cobre_shm.run(case, out, num_workers=workers, threads=1, on_iteration=events.append)
        compared = subprocess.run(
            [cobre_shm.program(), "compare", str(out), str(tmp_path / "local")],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert compared.returncode == 0, compared.stdout + compared.stderr
        assert [event["iteration"] for event in events] == [1, 2, 3, 4, 5, 6]
        assert set(events[0]) == {"kind", "iteration", "lower_bound", "upper_bound", "gap", "wall_time_ms"}
        assert result["iterations"] == 6 and result["lower_bound"] == own["lower_bound"] == events[-1]["lower_bound"]
        assert result["output_dir"] == str(out) and result["upper_bound"] == own["upper_bound"]
        assert [worker["rank"] for worker in result["workers"]] == list(range(workers))
        assert all(worker["seconds"] > 0 and (worker["peak_bytes"] or 0) > 1 << 20 for worker in result["workers"])
        for key in ("simulation", "stochastic", "hydro_models", "provenance"):
            assert result[key] == own[key] and result[key], key
    assert own["simulation"] is not None and own["simulation"]["n_scenarios"] == own["simulation"]["completed"] > 0
    assert own["stochastic"] is not None and own["stochastic"]["n_hydros"] == 3


def test_train_as_the_specification_writes_it(case: Path, tmp_path: Path) -> None:
    result = cobre_shm.train(case, num_workers=2, backend="shm", output_dir=tmp_path / "out")
    assert result["iterations"] == 6 and len(result["workers"]) == 2


def test_overrides_and_a_callback_that_stops(case: Path, tmp_path: Path) -> None:
    limit = {"training.stopping_rules": [{"type": "iteration_limit", "limit": 3}]}
    result = cobre_shm.run(case, tmp_path / "three", num_workers=2, config_overrides=limit)
    assert result["iterations"] == 3
    endless = {"training.stopping_rules": [{"type": "iteration_limit", "limit": 10_000}]}
    result = cobre_shm.run(
        case, tmp_path / "stopped", num_workers=2, config_overrides=endless, on_iteration=lambda event: event["iteration"] == 2
    )
    # The configured simulation has run.
    assert 2 <= result["iterations"] < 10_000 and result["simulation"] is not None

    def raises(event: dict[str, Any]) -> None:
        raise LookupError("of the callback")

    with pytest.raises(LookupError, match="of the callback"):
        cobre_shm.run(case, tmp_path / "raised", num_workers=2, config_overrides=endless, on_iteration=raises)
    assert (tmp_path / "raised" / "policy").is_dir()


def test_a_callback_whose_result_is_neither_true_nor_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training is asked to stop, and goes on to its end, as after a callback that raises."""

    class Neither:
        def __bool__(self) -> bool:
            raise ValueError("neither")

    program, ended = tmp_path / "program", tmp_path / "ended"
    program.write_text(
        "#!/bin/sh\n"
        f"trap 'echo asked >{ended}; exit 0' USR1\n"
        'echo \'{"kind": "iteration", "iteration": 1}\'\n'
        "for _ in $(seq 100); do sleep 0.1; done\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("COBRE_SHM", str(program))
    with pytest.raises(ValueError, match="neither"):
        cobre_shm.run("case", on_iteration=lambda _: Neither())
    assert ended.read_text() == "asked\n"


def test_errors(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(cobre_shm.CaseIoError, match="there is no such case directory") as missing:
        cobre_shm.run(tmp_path / "nowhere", num_workers=2)
    assert isinstance(missing.value, OSError) and missing.value.status == 2
    with pytest.raises(cobre_shm.ValidationError, match="trainning"):
        cobre_shm.run(case, tmp_path / "out", config_overrides={"trainning.tree_seed": 7})
    with pytest.raises(ValueError, match="num_workers=0"):
        cobre_shm.run(case, num_workers=0)
    with pytest.raises(ValueError, match="local"):
        cobre_shm.train(case, num_workers=2, backend="local")
    monkeypatch.setenv("COBRE_SHM", "/no/such/program")
    with pytest.raises(FileNotFoundError, match="COBRE_SHM"):
        cobre_shm.run(case)


SCRIPT = """
import sys, cobre_shm
endless = {"training.stopping_rules": [{"type": "iteration_limit", "limit": 10_000}]}
first = lambda event: print(event["iteration"], flush=True) if event["iteration"] == 1 else None
cobre_shm.run(sys.argv[1], sys.argv[2], num_workers=2, threads=1, config_overrides=endless, on_iteration=first)
"""


def interrupted(case: Path, out: Path, number: signal.Signals) -> tuple[int, str]:
    """Starts a run that would take for ever, and sends a signal to Python when it trains. Nothing is left."""
    before = set(os.listdir("/dev/shm"))
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(case), str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # In the background of a shell SIGINT is ignored, and so it would be here.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with script:
        assert script.stdout is not None
        assert script.stdout.readline() == "1\n", script.stderr.read() if script.stderr else ""
        (launcher,) = children(script.pid)
        processes = [launcher, *children(launcher)]
        assert len(processes) == 3
        script.send_signal(number)
        _, errors = script.communicate(timeout=LIMIT)
    all_end(processes, 10)
    assert {name for name in set(os.listdir("/dev/shm")) - before if f"cobre-shm-{launcher}-" in name} == set()
    return script.returncode, errors


def test_ctrl_c_leaves_nothing_and_writes_the_policy(case: Path, tmp_path: Path) -> None:
    code, errors = interrupted(case, tmp_path / "out", signal.SIGINT)
    assert "KeyboardInterrupt" in errors and code in (-signal.SIGINT, 130, 1), errors
    metadata = json.loads((tmp_path / "out" / "training" / "metadata.json").read_text())
    assert metadata and (tmp_path / "out" / "policy").is_dir()


def test_the_workers_end_when_python_is_killed(case: Path, tmp_path: Path) -> None:
    code, _ = interrupted(case, tmp_path / "out", signal.SIGKILL)
    assert code == -signal.SIGKILL


def test_progress_is_a_table_of_the_iterations(case: Path, tmp_path: Path) -> None:
    console = pytest.importorskip("rich.console").Console(record=True, width=100, file=(tmp_path / "shown").open("w"))
    with cobre_shm.Progress(console) as progress:
        cobre_shm.run(case, tmp_path / "out", num_workers=2, on_iteration=progress)
    shown = console.export_text()
    assert "lower bound" in shown and any(line.split()[1:2] == ["6"] for line in shown.splitlines()), shown
