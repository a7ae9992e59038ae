"""Pickles of plain data, read by an interpreter that can build nothing else.

A pickle is a program. The reader of the standard library runs all of it and can only be told which names not to look
up; it still takes gigabytes for a memo of one entry with a large number, hashes keys of any depth (which ends the
process), and does so before anybody can count. The instructions that plain data needs are few and simple, so they
are carried out here, one by one: None, booleans, numbers, text, bytes, lists, tuples, and dictionaries with text or
numbers as keys. Every other instruction is an error, and so is any excess. Protocols 0 to 5 are known.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from ingero_mcp.importers.flight_recorder.plain import refuse_excess

MAX_INSTRUCTIONS: Final = 24_000_000
MAX_MADE: Final = 12_000_000
"""How many lists, dictionaries, tuples, texts and entries of the memo there may be: each takes 50 to 100 bytes."""

_MAX_PROTOCOL: Final = 5
_MAX_DIGITS: Final = 40
_MAX_LONG_BYTES: Final = 16
_STOP: Final = ord(".")


def unpickle(data: bytes) -> Any:
    """The value of a pickle, as plain data without cycles and of limited size (`plain.refuse_excess`).

    Keys of dictionaries are text: numbers are written out. Raises ValueError.
    """
    machine = _Machine(data)
    value = machine.run()
    refuse_excess(value, machine.shared)
    return value


class _Machine:
    """The stack, the open marks (positions in the stack) and the memo of a pickle that is being read.

    `shared` holds the identity of every container that was fetched from the memo.
    """

    __slots__ = ("at", "data", "made", "marks", "memo", "shared", "stack")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.shared: set[int] = set()
        self.made = 0

    def run(self) -> Any:
        data, instructions = self.data, _INSTRUCTIONS
        try:
            for _ in range(MAX_INSTRUCTIONS):
                code = data[self.at]
                self.at += 1
                if code == _STOP:
                    return self.result()
                instructions[code](self)
        except IndexError:
            raise ValueError("a broken or cut-off pickle") from None
        raise ValueError(f"a pickle of more than {MAX_INSTRUCTIONS} instructions")

    def result(self) -> Any:
        if len(self.stack) != 1 or self.marks:
            raise ValueError("a broken pickle")
        if self.at != len(self.data):
            raise ValueError("something follows the end of the pickle")
        return self.stack[0]

    def refuse(self) -> None:
        code = self.data[self.at - 1]
        raise ValueError(f"a pickle that does more than hold data (instruction {code:#04x} at byte {self.at - 1})")

    # What instructions are made of.

    def take(self, size: int) -> bytes:
        begin = self.at
        self.at = end = begin + size
        if end > len(self.data):
            raise ValueError("a broken or cut-off pickle")
        return self.data[begin:end]

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def line(self) -> bytes:
        begin = self.at
        end = self.data.find(b"\n", begin)
        if end < 0:
            raise ValueError("a broken or cut-off pickle")
        self.at = end + 1
        return self.data[begin:end]

    def digits(self) -> int:
        line = self.line()
        if len(line) > _MAX_DIGITS:
            raise ValueError("a number of absurd length")
        return int(line)

    def make(self, value: Any) -> None:
        self.count()
        self.stack.append(value)

    def count(self) -> None:
        self.made += 1
        if self.made > MAX_MADE:
            raise ValueError(f"a pickle of more than {MAX_MADE} values")

    def popped(self) -> list[Any]:
        """What lies above the last mark, which is taken away with it."""
        begin = self.marks.pop()
        values = self.stack[begin:]
        del self.stack[begin:]
        return values

    # The instructions.

    def protocol(self) -> None:
        if self.byte() > _MAX_PROTOCOL:
            raise ValueError("a pickle of an unknown protocol")

    def frame(self) -> None:
        self.take(8)  # how far to read ahead, which does not matter here

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def integer(self) -> None:
        # The first protocols have no booleans of their own.
        line = self.data[self.at : self.at + 3]
        value = self.digits()
        self.stack.append({b"00\n": False, b"01\n": True}.get(line, value))

    def long_line(self) -> None:
        line = self.line().removesuffix(b"L")
        if len(line) > _MAX_DIGITS:
            raise ValueError("a number of absurd length")
        self.stack.append(int(line))

    def long(self) -> None:
        size = self.byte()
        if size > _MAX_LONG_BYTES:
            raise ValueError("a number of absurd length")
        self.stack.append(int.from_bytes(self.take(size), "little", signed=True))

    def binary_integer(self) -> None:
        self.stack.append(int.from_bytes(self.take(4), "little", signed=True))

    def float_line(self) -> None:
        line = self.line()
        if len(line) > _MAX_DIGITS:
            raise ValueError("a number of absurd length")
        self.stack.append(float(line))

    def binary_float(self) -> None:
        self.stack.append(struct.unpack(">d", self.take(8))[0])

    def text_line(self) -> None:
        self.make(self.line().decode("raw-unicode-escape"))

    def text(self, length_bytes: int) -> None:
        self.make(self.take(self.number(length_bytes)).decode(errors="replace"))

    def bytes(self, length_bytes: int) -> None:
        self.make(self.take(self.number(length_bytes)))

    def append(self) -> None:
        value = self.stack.pop()
        self.list_below().append(value)

    def appends(self) -> None:
        values = self.popped()
        self.list_below().extend(values)

    def list_below(self) -> list[Any]:
        below = self.stack[-1]
        if type(below) is not list:
            raise ValueError("a broken pickle")
        return below

    def set_item(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self.fill([key, value])

    def set_items(self) -> None:
        self.fill(self.popped())

    def fill(self, items: list[Any]) -> None:
        below = self.stack[-1]
        if type(below) is not dict or len(items) % 2:
            raise ValueError("a broken pickle")
        for index in range(0, len(items), 2):
            key = items[index]
            if type(key) is int:
                key = str(key)
            elif type(key) is not str:
                raise ValueError("a dictionary whose keys are neither text nor numbers")
            below[key] = items[index + 1]

    def whole_list(self) -> None:
        self.make(self.popped())

    def whole_dictionary(self) -> None:
        items = self.popped()
        self.make({})
        self.fill(items)

    def whole_tuple(self) -> None:
        self.make(tuple(self.popped()))

    def short_tuple(self, size: int) -> None:
        if len(self.stack) < size:
            raise ValueError("a broken pickle")
        values = tuple(self.stack[-size:])
        del self.stack[-size:]
        self.make(values)

    def put(self, key: int) -> None:
        self.count()
        self.memo[key] = self.stack[-1]

    def get(self, key: int) -> None:
        try:
            value = self.memo[key]
        except KeyError:
            raise ValueError("a broken pickle") from None
        if type(value) in (list, dict, tuple):
            self.shared.add(id(value))
        self.stack.append(value)


_BY_NAME: Final[dict[str | int, Callable[[_Machine], None]]] = {
    "N": lambda machine: machine.stack.append(None),
    0x88: lambda machine: machine.stack.append(True),
    0x89: lambda machine: machine.stack.append(False),
    "I": _Machine.integer,
    "J": _Machine.binary_integer,
    "K": lambda machine: machine.stack.append(machine.byte()),
    "M": lambda machine: machine.stack.append(machine.number(2)),
    "L": _Machine.long_line,
    0x8A: _Machine.long,
    "F": _Machine.float_line,
    "G": _Machine.binary_float,
    "V": _Machine.text_line,
    0x8C: lambda machine: machine.text(1),
    "X": lambda machine: machine.text(4),
    0x8D: lambda machine: machine.text(8),
    "C": lambda machine: machine.bytes(1),
    "B": lambda machine: machine.bytes(4),
    0x8E: lambda machine: machine.bytes(8),
    "]": lambda machine: machine.make([]),
    "}": lambda machine: machine.make({}),
    ")": lambda machine: machine.make(()),
    "a": _Machine.append,
    "e": _Machine.appends,
    "s": _Machine.set_item,
    "u": _Machine.set_items,
    "l": _Machine.whole_list,
    "d": _Machine.whole_dictionary,
    "t": _Machine.whole_tuple,
    0x85: lambda machine: machine.short_tuple(1),
    0x86: lambda machine: machine.short_tuple(2),
    0x87: lambda machine: machine.short_tuple(3),
    "(": _Machine.mark,
    0x80: _Machine.protocol,
    0x95: _Machine.frame,
    "p": lambda machine: machine.put(machine.digits()),
    "q": lambda machine: machine.put(machine.byte()),
    "r": lambda machine: machine.put(machine.number(4)),
    0x94: lambda machine: machine.put(len(machine.memo)),
    "g": lambda machine: machine.get(machine.digits()),
    "h": lambda machine: machine.get(machine.byte()),
    "j": lambda machine: machine.get(machine.number(4)),
}
_INSTRUCTIONS: Final = [_BY_NAME.get(code, _BY_NAME.get(chr(code), _Machine.refuse)) for code in range(256)]
