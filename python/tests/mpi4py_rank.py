"""A rank that runs mpi4py's test files over `intranode.MPI`, and prints what has become of the tests of each, on rank 0."""

from __future__ import annotations

import io
import json
import sys
import types
import unittest
from typing import Any

from intranode import MPI


class _Result(unittest.TextTestResult):
    """Which tests have failed, also in a part."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.failed: dict[str, str] = {}

    def _fail(self, test: unittest.TestCase, error: Any) -> None:
        name = test.id().partition(" ")[0]
        self.failed.setdefault(name, f"{error[0].__name__}: {error[1]}".splitlines()[0])

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._fail(test, err)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._fail(test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._fail(test, err)


def main() -> None:
    """`mpi4py_rank.py FOLDER MODULE…`"""
    folder, *modules = sys.argv[1:]
    sys.path.insert(0, folder)
    package: Any = types.ModuleType("mpi4py")
    package.MPI = MPI
    sys.modules["mpi4py"], sys.modules["mpi4py.MPI"] = package, MPI
    import arrayimpl  # type: ignore[import-not-found]

    # The others have no buffer: DLPack, and CUDA's interface over memory of the host.
    arrayimpl.ArrayBackends[:] = [arrayimpl.ArrayArray, arrayimpl.ArrayNumPy]
    for module in modules:
        suite = unittest.defaultTestLoader.loadTestsFromName(module)
        result = unittest.TextTestRunner(io.StringIO(), resultclass=_Result).run(suite)
        if MPI.COMM_WORLD.Get_rank() == 0:
            failed: dict[str, str] = result.failed  # type: ignore[attr-defined]
            told = {"module": module, "run": result.testsRun, "failed": failed, "skipped": len(result.skipped)}
            print("\0" + json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
