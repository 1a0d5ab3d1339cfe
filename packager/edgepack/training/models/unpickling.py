"""Pickles of weights read without calling anything that they name.

A pickle may call any name of any module, so a file of weights can run code. Python also computes the hash of every key
of a dict, which takes for ever for a few nested tuples, and makes a byte array as large as a pickle says before it
reads a byte of it. And two bytes of a pickle name a large object that it holds already, so a small file can have it
copied very often. Here, each reader lists the few names that its files need, keys are short texts, bytes are read
first, and a load has a limit of steps.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import IO, Any, ClassVar, Final

# An opcode, or what it needs, is missing; or it claims more bytes than there can be.
_DAMAGE = (LookupError, EOFError, TypeError, AttributeError, MemoryError, OverflowError)
# Opcodes, and items of arguments, in one load. A tensor of torch takes 40 opcodes and 20 items, so there may be 15,000
# tensors. What a step makes takes some 100 bytes and a microsecond.
_MOST_STEPS: Final = 1_000_000
_MOST_NAME_CHARS: Final = 1024  # of a weight; a dict compares a key with an equal one to its end, each time
Known = Mapping[tuple[str, str], Callable[..., Any]]


class WeightsUnpickler(pickle._Unpickler):
    """Unpickler that calls the names in `known` alone. Python's own, not the one in C: its steps can be replaced.

    Raises:
        pickle.UnpicklingError: the pickle asks for another name, a set, an object, or a key that is not a short text;
            it takes too many steps; or it is damaged.
    """

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch}
    stack: list[Any]  # as `append` and `pop_mark`, of the base class, which has no types
    append: Callable[[Any], None]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, file: IO[bytes], known: Known, *, encoding: str = "ASCII") -> None:
        super().__init__(file, encoding=encoding)
        self._known = known
        self._steps = _Steps(self.dispatch)
        self.dispatch = self._steps  # type: ignore[misc]  # of this load alone

    def load(self) -> Any:
        try:
            return super().load()
        except _DAMAGE as error:
            raise pickle.UnpicklingError("it is damaged, or is not a pickle") from error

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(f"it asks for `{module}.{name}`, which no weights need")
        return self._known[module, name]

    def load_reduce(self) -> None:
        """Call a known function. Its arguments may be of any size, and those of an earlier call."""
        arguments = self.stack.pop()
        if type(arguments) is not tuple:
            raise pickle.UnpicklingError("the arguments are not a tuple")
        self._steps.take(len(arguments))
        self._steps.take(sum(len(each) for each in arguments if type(each) in (list, tuple)))
        self.stack[-1] = self.stack[-1](*arguments)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _put(self.stack[-1], [key, value])

    def load_setitems(self) -> None:
        items = self.pop_mark()
        _put(self.stack[-1], items)

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.append(_put({}, items))

    def load_build(self) -> None:
        """Give arrays their state. Dicts of torch need none, and a named function would keep it for the next file."""
        state = self.stack.pop()
        restore = getattr(self.stack[-1], "__setstate__", None)
        if restore is not None:
            restore(state)

    def refuse(self) -> None:
        raise pickle.UnpicklingError("it holds a set or an object, which no weights need")

    def load_bytearray(self) -> None:
        self.append(bytearray(self.read(int.from_bytes(self.read(8), "little"))))

    for opcode, method in (
        (pickle.REDUCE, load_reduce),
        (pickle.SETITEM, load_setitem),
        (pickle.SETITEMS, load_setitems),
        (pickle.DICT, load_dict),
        (pickle.BUILD, load_build),
        (pickle.EMPTY_SET, refuse),
        (pickle.ADDITEMS, refuse),
        (pickle.FROZENSET, refuse),
        (pickle.INST, refuse),
        (pickle.OBJ, refuse),
        (pickle.NEWOBJ, refuse),
        (pickle.NEWOBJ_EX, refuse),
        (pickle.BYTEARRAY8, load_bytearray),
    ):
        dispatch[opcode[0]] = method


class _Steps(dict[int, Any]):
    """The methods of opcodes. To look one up is a step of the load."""

    left = _MOST_STEPS

    def __getitem__(self, opcode: int) -> Any:
        self.take(1)
        return super().__getitem__(opcode)

    def take(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise pickle.UnpicklingError(f"it takes more than {_MOST_STEPS} steps, more than weights need")


def ordered(pairs: Any = ()) -> dict[str, Any]:
    """`collections.OrderedDict` of a pickle; Python 2 wrote its pairs as an argument."""
    if type(pairs) not in (list, tuple) or not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
        raise pickle.UnpicklingError("a dict is made of something that is not pairs")
    made: dict[str, Any] = _put({}, [item for pair in pairs for item in pair])
    return made


def _put(target: Any, items: list[Any]) -> Any:
    """Store `items`, alternately keys and values, in the dict `target`."""
    if not isinstance(target, dict) or not all(type(key) is str and len(key) <= _MOST_NAME_CHARS for key in items[::2]):
        raise pickle.UnpicklingError("it holds a dict whose keys are not short texts")
    target.update(zip(items[::2], items[1::2], strict=True))
    return target
