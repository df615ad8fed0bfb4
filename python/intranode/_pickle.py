"""Pickles of functions for another interpreter.

A function of a module goes by its name. One of `__main__`, of a notebook or of a prompt, and a lambda or a nested one, go by value:
their code, defaults, what they capture, and the globals that they use. So the other interpreter has not to run `__main__` again, and
a script needs no guard. Their classes go by value too, if they are plain, or dataclasses: not enumerations, and none with `__slots__`,
which for their metaclass are more than their fields. With cloudpickle installed, that does it.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import importlib
import io
import marshal
import pickle
import sys
import types
from typing import Any

try:
    import cloudpickle  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    cloudpickle = None


def dumps(obj: Any) -> bytes:
    """A pickle that `loads` reads in an interpreter of the same version."""
    if cloudpickle is not None:
        data: bytes = cloudpickle.dumps(obj)
        return data
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(obj)
    return buffer.getvalue()


def loads(data: bytes) -> Any:
    return pickle.loads(data)


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, types.FunctionType) and not _found(obj):
            state = (
                {name: obj.__globals__[name] for name in _names(obj.__code__) if name in obj.__globals__},
                obj.__defaults__,
                obj.__kwdefaults__,
                [cell.cell_contents for cell in obj.__closure__ or ()],
                obj.__dict__,
            )
            made = (marshal.dumps(obj.__code__), obj.__module__, obj.__qualname__, len(obj.__closure__ or ()))
            return _function, made, state, None, None, _fill
        if isinstance(obj, type) and obj.__module__ == "__main__":
            if isinstance(obj, enum.EnumMeta) or any(isinstance(v, types.MemberDescriptorType) for v in obj.__dict__.values()):
                raise pickle.PicklingError(
                    f"{obj.__qualname__} of __main__ is an enumeration, or has __slots__, and cannot go to other interpreters by value: "
                    "put it into a module that they can import, or install cloudpickle"
                )
            own = {k: v for k, v in obj.__dict__.items() if k not in ("__dict__", "__weakref__")}
            return _class, (type(obj), obj.__name__, obj.__bases__), own, None, None, _fill_class
        if isinstance(obj, classmethod | staticmethod | property):
            if isinstance(obj, property):
                return property, (obj.fget, obj.fset, obj.fdel, obj.__doc__)
            return type(obj), (obj.__func__,)
        if isinstance(obj, types.MappingProxyType):
            return _proxy, (dict(obj),)
        if id(obj) in _OF_DATACLASSES:
            return getattr, (dataclasses, _OF_DATACLASSES[id(obj)])
        return NotImplemented


# What fields of dataclasses are compared with by identity.
_OF_DATACLASSES = {
    id(getattr(dataclasses, name)): name
    for name in ("MISSING", "KW_ONLY", "_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR", "_HAS_DEFAULT_FACTORY")
    if hasattr(dataclasses, name)
}


def _found(function: types.FunctionType) -> bool:
    """Whether another interpreter finds it by its name."""
    module = sys.modules.get(function.__module__)
    if module is None or function.__module__ == "__main__":
        return False
    found: Any = module
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _names(code: types.CodeType) -> set[str]:
    """The global names that code uses, with what is nested in it."""
    # `co_names` has those of attributes too.
    names = {each.argval for each in dis.get_instructions(code) if "GLOBAL" in each.opname or each.opname == "LOAD_NAME"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _function(code: bytes, module: str, name: str, cells: int) -> types.FunctionType:
    globals_ = _main() if module == "__main__" else {"__name__": module, "__builtins__": __builtins__}
    closure = tuple(types.CellType() for _ in range(cells))
    function = types.FunctionType(marshal.loads(code), globals_, name.rpartition(".")[2], None, closure)
    function.__qualname__, function.__module__ = name, module
    if module == "__main__":
        globals_.setdefault(function.__name__, function)
    return function


def _fill(function: types.FunctionType, state: tuple[Any, ...]) -> None:
    globals_, defaults, keywords, cells, own = state
    function.__globals__.update(globals_)
    function.__defaults__, function.__kwdefaults__ = defaults, keywords
    for cell, value in zip(function.__closure__ or (), cells, strict=True):
        cell.cell_contents = value
    function.__dict__.update(own)


def _proxy(mapping: dict[Any, Any]) -> types.MappingProxyType[Any, Any]:
    return types.MappingProxyType(mapping)


def _class(metaclass: type, name: str, bases: tuple[type, ...]) -> type:
    made: type = metaclass(name, bases, {"__module__": "__main__"})
    _main().setdefault(name, made)
    return made


def _fill_class(made: type, own: dict[str, Any]) -> None:
    for name, value in own.items():
        setattr(made, name, value)


def _main() -> dict[str, Any]:
    return sys.modules["__main__"].__dict__
