"""The launcher: `python -m intranode -n 4 script.py ARGUMENTS`, or `-n 4 -m module`, or `-n 4 -- PROGRAM`."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time

from . import _reaction
from ._run import _GRACE, ends_with_parent, how


def main(arguments: list[str] | None = None) -> int:
    """Starts the ranks, and returns the code of the first that failed by itself, or 0."""
    parser = argparse.ArgumentParser(
        prog="python -m intranode",
        description="Starts N ranks of a Python script on this machine. When one fails, the others are ended.",
        epilog="Rank 0 has the standard input; the others have none.",
    )
    parser.add_argument("-n", "-np", type=int, default=os.cpu_count() or 1, metavar="N", help="ranks; default: processors")
    parser.add_argument("--timeout", metavar="SECONDS", help="without progress, after which a call fails, or none; default 60")
    module = "a module instead of a script, and its arguments"
    parser.add_argument("-m", nargs=argparse.REMAINDER, metavar="MODULE ...", dest="module", help=module)
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="SCRIPT ...", help="the script, or -- a program")
    options = parser.parse_args(_apart(sys.argv[1:] if arguments is None else arguments))
    if options.n < 1:
        parser.error(f"-n {options.n}: at least one rank is needed")
    rest: list[str] = options.rest
    if options.module:
        command = [sys.executable, "-m", *options.module, *rest]
    elif rest[:1] == ["--"] and len(rest) > 1:
        command = rest[1:]
    elif rest and rest[0] != "--":
        if rest[0] != "-" and not os.path.exists(rest[0]):
            parser.error(f"there is no script {rest[0]}; a program is started by -n {options.n} -- {shlex.join(rest)}")
        command = [sys.executable, *rest]
    else:
        parser.error("a script is needed: python -m intranode -n 4 script.py")
    variables = dict(os.environ)
    variables["INTRANODE_NAME"] = f"/intranode-{os.getpid()}-{time.monotonic_ns() % 1_000_000_000}"
    variables["INTRANODE_SIZE"] = str(options.n)
    # These variables count, whatever was chosen for another launcher.
    variables.pop("INTRANODE_LAUNCHER", None)
    if options.timeout is not None:
        variables["INTRANODE_TIMEOUT"] = options.timeout
    return _run(command, options.n, variables)


def _apart(arguments: list[str]) -> list[str]:
    """`-mMODULE` as two arguments: behind one argparse would take the module's options for those of its own name."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] not in ("-", "--"):
        if arguments[at].startswith("-m"):
            return [*arguments[:at], *filter(None, ("-m", arguments[at][2:])), *arguments[at + 1 :]]
        # Its value is another argument.
        at += 2 if arguments[at] in ("-n", "-np") or "--timeout".startswith(arguments[at]) else 1
    return arguments


def _run(command: list[str], size: int, variables: dict[str, str]) -> int:
    ranks: list[subprocess.Popen[bytes]] = []
    forwarded: list[int] = []

    def forward(number: int, _: object) -> None:
        # Ctrl-C at a terminal has reached the ranks too. A signal of another process has not.
        forwarded.append(number)
        if number != signal.SIGINT or not os.isatty(0):
            for rank in ranks:
                if rank.poll() is None:
                    rank.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    failures: list[tuple[int, int]] = []
    reacted: set[int] = set()
    are_ended = False
    not_started = False
    deadline: float | None = None
    listening = _reaction.listen(variables["INTRANODE_NAME"])
    try:
        for number in range(size):
            ranks.append(
                subprocess.Popen(
                    command,
                    env=variables | {"INTRANODE_RANK": str(number)},
                    stdin=None if number == 0 else subprocess.DEVNULL,
                    preexec_fn=ends_with_parent,
                )
            )
        running = set(range(size))
        while running:
            for number in sorted(running):
                code = ranks[number].poll()
                if code is None:
                    continue
                running.discard(number)
                if code:
                    failures.append((number, code))
                if code and deadline is None:
                    are_ended = bool(running and not forwarded)
                    deadline = time.monotonic() + _GRACE
            reacted |= _reaction.heard(listening)
            if deadline is not None and time.monotonic() > deadline:
                break
            if running:
                time.sleep(0.01)
    except OSError as error:
        print(f"intranode: {command[0]}: {error.strerror}", file=sys.stderr)
        not_started = True
    finally:
        if listening is not None:
            listening.close()
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
    if failures:
        number, code = _cause(failures, {number for number, rank in enumerate(ranks) if rank.pid in reacted}, forwarded)
        if are_ended:
            print(f"intranode: rank {number} {how(code)}; the other ranks are ended", file=sys.stderr)
        return 128 - code if code < 0 else code
    if not_started:
        return 127
    return 128 + forwarded[0] if forwarded else 0


def _cause(failures: list[tuple[int, int]], reacted: set[int], forwarded: list[int]) -> tuple[int, int]:
    """The failure that decides the job's code, of ranks and codes in the order in which they ended.

    What a rank raises because of another one may end it first: that has left, or is dead, before its process has ended.
    """
    own = [failure for failure in failures if failure[0] not in reacted] or failures
    # As of `intranode run`: a rank that has caught the error may exit with a code of its own.
    died = (failure for failure in own if failure[1] < 0 and -failure[1] not in (signal.SIGABRT, *forwarded))
    return next(died, own[0]) if own[0][1] > 0 else own[0]


if __name__ == "__main__":
    sys.exit(main())
