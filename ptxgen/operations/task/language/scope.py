"""The meaning of names in a text (axes, bounds, definitions, inputs, the accumulator), and the places of errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from ptxgen.errors import TaskError
from ptxgen.expr.node import Node, variable
from ptxgen.expr.value_types import type_of
from ptxgen.operations.task.assembling import RESERVED, number_type
from ptxgen.operations.task.language.grammar import Token, placed
from ptxgen.operations.task.program import ACCUMULATOR, AXES, EXTENTS
from ptxgen.operations.task.typed import INPUT_TYPES, Scalar, Value


class Scope:
    """The names of a text. ``given``: the types of inputs that the text does not declare; ``declared``, ``shapes``: the
    types and axes of inputs that it declares; ``axes``: name -> i, j or k; ``extents``: name of a bound -> M, N or K;
    ``definitions``: name -> value; ``ended``: names that were defined inside of reduce, when it has ended; ``used``:
    definitions that are read; ``uses``: input -> the axes with which it is read; ``wanted``: Python number -> the types
    of the values with which it is combined; ``place``: the part of the text that is read: when, before, reduce or
    after."""

    def __init__(self, text: str, given: Mapping[str, str]) -> None:
        self.text, self.given = text, given
        self.declared: dict[str, str] = {}
        self.shapes: dict[str, tuple[str, ...]] = {}
        self.axes: dict[str, str] = {}
        self.extents: dict[str, str] = {}
        self.definitions: dict[str, Value] = {}
        self.ended: set[str] = set()
        self.used: set[str] = set()
        self.uses: dict[str, dict[tuple[str, ...], Any]] = {}
        self.wanted: dict[str, set[str]] = {}
        self.accumulator = ""
        self.output_names: set[str] = set()
        self.place = "when"

    def fail(self, at: Any, message: str) -> TaskError:
        """The error at a token or at a part of the tree."""
        if isinstance(at, Token):
            return placed(self.text, message, at.line or 1, at.column or 1, len(at))
        meta = at.meta
        if meta.empty:
            return placed(self.text, message, 1, 1)
        length = meta.end_column - meta.column if meta.end_line == meta.line else 120
        return placed(self.text, message, meta.line, meta.column, length)

    @contextmanager
    def at(self, where: Any) -> Iterator[None]:
        """Within the block, errors without a place get the place ``where``."""
        try:
            yield
        except TaskError as error:
            if error.line:
                raise
            raise self.fail(where, str(error)) from None

    def near(self, name: str, known: Iterable[str]) -> str:
        near = get_close_matches(name, list(dict.fromkeys(known)), 1, 0.6)
        return near[0] if near else ""

    def check_name(self, name: Token) -> None:
        if name in RESERVED - {*AXES, *EXTENTS, ACCUMULATOR}:
            raise self.fail(name, f"{name} is a word of the language; it must be another name")

    def check_input(self, name: Token, type: str, at: Any) -> None:
        self.check_name(name)
        if name in self.axes or name in (*AXES, ACCUMULATOR):
            raise self.fail(
                name, f"{name} is the name of an axis or of the accumulator; the input must have another name"
            )
        if type not in INPUT_TYPES:
            raise self.fail(at, f"{name} is {type}; it must be one of {', '.join(INPUT_TYPES)}")

    def no_axis(self, token: Token, axes: Iterable[str]) -> TaskError:
        """The error of an index that is none of the axes."""
        near = instead(self.near(token, axes))
        return self.fail(token, f"{token} is no axis; it must be {', '.join(axes)}{near}")

    def axis(self, token: Any, others: Iterable[Any] = ()) -> str:
        """The axis that an index names. TaskError: it names no axis, or an axis that occurs twice in ``others``."""
        if token not in self.axes:
            raise self.no_axis(token, self.axes)
        if sum(x == token for x in others) > 1:
            raise self.fail(token, f"the axis {token} is written twice; each axis must be written once")
        return self.axes[str(token)]

    def named(self, token: Token) -> Value:
        name = str(token)
        if name in self.definitions:
            self.used.add(name)
            return self.definitions[name]
        if name == self.accumulator:
            raise self.fail(token, self.early(name))
        if name in self.ended:
            raise self.fail(
                token,
                f"{name} is defined in reduce, where it changes with the reduced axis; it has no value after reduce",
            )
        if name in self.axes:
            axis = self.axes[name]
            if axis == "k" and self.place != "reduce":
                raise self.fail(token, f"{name} is the reduced axis; it must be read in reduce")
            return variable(axis, "s32")
        if name in self.extents:
            return variable(self.extents[name], "s32")
        return self.input(token, (), token)

    def early(self, name: str) -> str:
        if self.place == "when":
            return (
                f"{name} is reduced for the pairs that when selects; when must not read it: write condition ? L.add(…)"
            )
        if self.place == "reduce":
            return f"{name} is read in reduce, before it is complete; it must be read after reduce"
        return f"{name} is read before it is reduced; it must be read after reduce"

    def input(self, token: Token, axes: tuple[str, ...], at: Any) -> Value:
        """The value of an input: an element of an array, or a scalar."""
        name = str(token)
        type = self.declared.get(name) or self.given.get(name)
        self.check_name(token)
        if name == self.accumulator:
            raise self.fail(token, f"{name} is the accumulator; the array must have another name")
        if name in (*AXES, ACCUMULATOR) or (not axes and name in EXTENTS):
            raise self.fail(token, f"{name} is a word of the language; the input must have another name")
        if name in self.output_names:
            raise self.fail(token, f"{name} is an output and has no value to read; the input must have another name")
        if type is None:
            raise self.fail(token, self.unknown(name, axes))
        declared = self.shapes.get(name)
        if declared is not None and len(declared) != len(axes):
            raise self.fail(
                at,
                f"{name} is declared with {_count(len(declared))}; it must not be read with {_count(len(axes))}",
            )
        uses = self.uses.setdefault(name, {})
        other = next(iter(uses), axes)
        if len(other) != len(axes):
            raise self.fail(
                at, f"{name} is read with {_count(len(other))} before; it must not be read with {_count(len(axes))}"
            )
        uses.setdefault(axes, at)
        if type in ("float", "int"):
            if axes:
                raise self.fail(at, f"{name} is a number; it must be an array")
            return Scalar(name, lambda wanted: self.number(name, wanted))
        self.check_input(token, type, token)
        return variable(f"{name}[{','.join(axes)}]" if axes else name, type)

    def number(self, name: str, wanted: str | None) -> Node:
        """A Python number in the type ``wanted`` of the value with which it is combined."""
        number = self.given[name]
        if wanted is not None:
            self.wanted.setdefault(name, set()).add(wanted)
        if wanted is None or (number == "float" and not type_of(wanted).floating):
            wanted = number_type(number, ())
        return variable(name, wanted)

    def unknown(self, name: str, axes: tuple[str, ...]) -> str:
        known = [*self.definitions, *self.axes, *self.extents, *self.declared, *self.given, self.accumulator]
        near = self.near(name, (x for x in known if x != name))
        written = f"[{', '.join(axes)}]" if axes else ""
        declaration = f"declare {name}: f32{written}; before where"
        return f"{name} is unknown; {f'write {near}, or ' if near else ''}{declaration}"


def instead(name: str) -> str:
    return f": write {name}" if name else ""


def _count(axes: int) -> str:
    return {0: "no axis", 1: "one axis"}.get(axes, f"{axes} axes")
