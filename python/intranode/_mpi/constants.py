"""Numbers, how objects are pickled, and no communicator."""

from __future__ import annotations

import pickle as _pickle
from typing import Any

ANY_SOURCE = ANY_TAG = -1
PROC_NULL = -2
UNDEFINED = -32766
COMM_TYPE_SHARED = 1
SUCCESS = 0
ERR_TYPE, ERR_ROOT, ERR_OTHER = 3, 7, 15
THREAD_SINGLE, THREAD_FUNNELED, THREAD_SERIALIZED, THREAD_MULTIPLE = range(4)
BSEND_OVERHEAD = 0
BOTTOM = None
KEYVAL_INVALID = APPNUM = -1

NOTHING = (PROC_NULL, ANY_TAG, 0)
"""What is known of a message from, or to, PROC_NULL."""
EMPTY = (ANY_SOURCE, ANY_TAG, 0)
"""What is known where there is no call."""


class _Pickle:
    """How objects are pickled."""

    PROTOCOL = _pickle.HIGHEST_PROTOCOL

    def dumps(self, obj: Any) -> bytes:
        return _pickle.dumps(obj, self.PROTOCOL)

    def loads(self, data: Any) -> Any:
        return _pickle.loads(data) if len(data) else None


pickle = _Pickle()


class _Null:
    """No communicator."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "intranode.MPI.COMM_NULL"


COMM_NULL: Any = _Null()
