"""Runs `cobre-shm run --json`, and reads what it says."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypedDict

from . import errors


class Worker(TypedDict):
    """A rank: how long it ran, and the most memory that it had, with what it shares."""

    rank: int
    seconds: float
    peak_bytes: int | None


class RunResult(TypedDict):
    """The result of `run`: the keys of cobre-python's, and `workers`, by rank. A value of a phase that did not run is None."""

    converged: bool
    iterations: int
    lower_bound: float
    upper_bound: float | None
    gap_percent: float | None
    total_time_ms: int
    output_dir: str
    simulation: dict[str, int] | None
    stochastic: dict[str, Any] | None
    hydro_models: dict[str, int] | None
    provenance: dict[str, Any] | None
    workers: list[Worker]


_OF_A_RANK = {f"{prefix}_{each}" for prefix in ("COBRE_SHM", "INTRANODE") for each in ("NAME", "RANK", "SIZE", "LAUNCHER")}

# The exit status of a run that a signal has stopped, with a policy.
_STOPPED = 5


def program() -> str:
    """Where `cobre-shm` is: `COBRE_SHM`, or in this wheel, or on the path.

    Raises FileNotFoundError if it is nowhere.
    """
    named = os.environ.get("COBRE_SHM")
    candidates = [named] if named else [os.path.join(sysconfig.get_path("scripts"), "cobre-shm"), "cobre-shm"]
    for candidate in candidates:
        found = shutil.which(candidate)
        if found:
            return found
    raise FileNotFoundError(
        f"the program cobre-shm is not at {named}, which COBRE_SHM names"
        if named
        else "the program cobre-shm is neither in this wheel nor on the path: build it by `cargo build --release -p "
        "intranode-cobre`, and set COBRE_SHM to target/release/cobre-shm"
    )


def run(
    case_dir: str | os.PathLike[str],
    output_dir: str | os.PathLike[str] | None = None,
    *,
    num_workers: int = 1,
    threads: int | None = None,
    config_overrides: Mapping[str, Any] | None = None,
    on_iteration: Callable[[dict[str, Any]], object] | None = None,
    backend: str = "shm",
) -> RunResult:
    """Loads a case, trains its policy, simulates it and writes the results, in `num_workers` processes of `threads` threads.

    `config_overrides`: a flat mapping of dotted keys, such as `{"training.tree_seed": 7}`, that replace settings of the case's
    config.json. `on_iteration` is called after each iteration with a dictionary: "kind", "iteration", "lower_bound",
    "upper_bound", "gap", "wall_time_ms". If it returns something true training stops after the next iteration; the policy is
    written, and the configured simulation still runs. If it raises, training stops too, and this raises it at the end.

    The results are the same, bit for bit, for any number of workers. `backend="local"` is Cobre's own, with one worker.

    Ctrl-C stops training after the iteration, and a second one at once; then this raises KeyboardInterrupt. No process is left.

    Raises ValidationError, CaseIoError, SolverError, CommunicationError; FileNotFoundError without `cobre-shm`.
    """
    if num_workers < 1 or (threads is not None and threads < 1):
        raise errors.ValidationError(f"num_workers={num_workers}, threads={threads}: both are at least 1")
    if backend not in ("shm", "local") or (backend == "local" and num_workers != 1):
        raise errors.ValidationError(
            f'backend={backend!r}, num_workers={num_workers}: "shm" for any number of workers, or "local" for one'
        )
    command = [program(), "run", os.fspath(case_dir), "--json", "--quiet", "--backend", backend, "--ranks", str(num_workers)]
    if output_dir is not None:
        command += ["--out", os.fspath(output_dir)]
    if threads is not None:
        command += ["--threads", str(threads)]
    for key, value in (config_overrides or {}).items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    with tempfile.TemporaryFile() as said:
        return _Run(command, said).result(on_iteration)


def train(
    case: str | os.PathLike[str], num_workers: int = 4, backend: str = "shm", **options: Any
) -> RunResult:
    """Trains a case with this number of processes: `run` with the specification's arguments. `options` are those of `run`."""
    return run(case, num_workers=num_workers, backend=backend, **options)


class _Run:
    """A run that goes on."""

    def __init__(self, command: list[str], said: IO[bytes]) -> None:
        self._said = said
        self._workers: list[Worker] = []
        self._result: dict[str, Any] | None = None
        self._raised: BaseException | None = None
        # A group of its own: Ctrl-C of a terminal would come to the workers too, and count twice. Under a launcher of ranks this
        # is no rank of it.
        own = {name: value for name, value in os.environ.items() if name not in _OF_A_RANK}
        self._process = subprocess.Popen(
            command,
            env=own | {"INTRANODE_LAUNCHER": "none"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            process_group=0,
        )

    def result(self, on_iteration: Callable[[dict[str, Any]], object] | None) -> RunResult:
        """Waits for its end."""
        try:
            return self._end(on_iteration)
        finally:
            if self._process.poll() is None:
                # Its workers end with it.
                self._process.kill()
                self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def _end(self, on_iteration: Callable[[dict[str, Any]], object] | None) -> RunResult:
        interrupted: KeyboardInterrupt | None = None
        while True:
            try:
                self._read(on_iteration)
                status = self._process.wait()
                break
            except KeyboardInterrupt as again:
                interrupted = again
                # The first lets the iteration end, the next one ends the workers.
                self._process.send_signal(signal.SIGINT)
        if interrupted is not None:
            raise interrupted
        if self._raised is not None:
            raise self._raised
        self._said.seek(0)
        text = self._said.read().decode(errors="replace").strip()
        if status not in (0, _STOPPED) or self._result is None:
            raise errors.of_status(status, text or f"cobre-shm has ended with status {status}")
        if text:
            print(text, file=sys.stderr)
        return self._complete()

    def _read(self, on_iteration: Callable[[dict[str, Any]], object] | None) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event["kind"] == "iteration":
                self._tell(on_iteration, event)
            elif event["kind"] == "worker":
                self._workers.append(Worker(rank=event["rank"], seconds=event["seconds"], peak_bytes=event["peak_bytes"]))
            elif event["kind"] == "result":
                self._result = event

    def _tell(self, on_iteration: Callable[[dict[str, Any]], object] | None, event: dict[str, Any]) -> None:
        if on_iteration is None or self._raised is not None:
            return
        stop = True
        try:
            stop = bool(on_iteration(event))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._raised = error
        if stop:
            self._process.send_signal(signal.SIGUSR1)

    def _complete(self) -> RunResult:
        assert self._result is not None
        result = dict(self._result)
        del result["kind"]
        provenance = Path(result["output_dir"]) / "training" / "model_provenance.json"
        result["provenance"] = json.loads(provenance.read_text()) if provenance.is_file() else None
        result["workers"] = sorted(self._workers, key=lambda worker: worker["rank"])
        return result  # type: ignore[return-value]
