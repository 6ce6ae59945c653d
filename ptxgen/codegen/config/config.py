"""Configurations: the values of one family's axes, their text form, and columns of many configurations.

Each family declares its axes (``ptxgen.codegen.config.axes``); a configuration has a value for each of these axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, make_dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ptxgen import plugins
from ptxgen.arguments import closest
from ptxgen.codegen.config.axes import (
    BOUNDS_CLAMP,
    BOUNDS_NONE,
    BOUNDS_PREDICATE,
    COMMON,
    DIRECT,
    PACK,
    PDL_WITHIN,
    REALIGN,
    SPLIT_DISTRIBUTED,
    SPLIT_FLAG,
    SPLIT_LAST_CTA,
    SPLIT_MEMSET,
    SPLIT_WORKSPACE,
    Axis,
)
from ptxgen.errors import ConfigError, InputError

#: names of the registered families; columns hold a family's index in this list
FAMILIES: list[str] = []

#: all axes by name: the common ones and those of registered families
AXIS: dict[str, Axis] = dict(COMMON)

_axes: dict[str, tuple[Axis, ...]] = {}  #: the axes of each registered family

WORDS_MOST = 1 << 10  #: limit of cached words per axis


class _Words(dict[int, str]):
    """Number -> the word ``name=value`` of one axis, cached because databases have hundreds of thousands of texts."""

    def __init__(self, axis: Axis) -> None:
        self.axis = axis

    def __missing__(self, number: int) -> str:
        word = f"{self.axis.name}={self.axis.value(number)}"
        if len(self) < WORDS_MOST:
            self[number] = word
        return word


class _Numbers(dict[str, int]):
    """Word of ``_Words`` -> number, for one axis. KeyError: the key is no such word."""

    def __init__(self, axis: Axis) -> None:
        self.axis = axis

    def __missing__(self, word: str) -> int:
        try:
            number = self.axis.parse(word.partition("=")[2])
        except ConfigError:
            raise KeyError(word) from None
        if word != f"{self.axis.name}={self.axis.value(number)}":
            raise KeyError(word)
        if len(self) < WORDS_MOST:
            self[word] = number
        return number


class _Classes(dict[str, "type[Config]"]):
    """Name of a registered family -> its configuration class. A class is made on the first use, because most processes
    use few families, and a class takes a millisecond."""

    def __missing__(self, family: str) -> type[Config]:
        axes = _axes[family]
        fields = [("family", str, field(default=family)), *((a.name, int, field(default=a.default)) for a in axes)]
        words, numbers = tuple(map(_Words, axes)), tuple(map(_Numbers, axes))
        space = {"axes": axes, "names": _names(axes), "words": words, "numbers_of_words": numbers}
        how = {"frozen": True, "kw_only": True, "eq": False, "repr": False}
        self[family] = made = make_dataclass(family, fields, bases=(Config,), namespace=space, **how)
        return made


_classes = _Classes()


def _names(axes: Sequence[Axis]) -> tuple[str, ...]:
    return tuple(a.name for a in axes)


class Config:
    """A configuration: a family and an integer for each of its axes. In ``Config(family="wgmma", ml=128)`` the other
    axes have their defaults; the default of ``family`` is the first family.

    Each family has a subclass, a frozen dataclass with a field for each of its axes. The methods are defined here,
    because generating methods for each family would take time at every start. A common axis that the family lacks reads
    as its default. Configurations are ordered by family, then by their axes.
    """

    family: str
    axes: ClassVar[tuple[Axis, ...]] = ()
    names: ClassVar[tuple[str, ...]] = ()
    words: ClassVar[tuple[_Words, ...]] = ()
    numbers_of_words: ClassVar[tuple[_Numbers, ...]] = ()

    def __new__(cls, **values: Any) -> Config:
        return object.__new__(_class(values.get("family", default_family())) if cls is Config else cls)

    def __post_init__(self) -> None:
        if self.family != type(self).__name__:
            raise ConfigError(f"family is {self.family!r}; these are axes of {type(self).__name__}", "axis")

    def __getattr__(self, name: str) -> int:
        if name in COMMON:
            return COMMON[name].default
        raise AttributeError(f"a configuration of the family {type(self).__name__} has no axis {name!r}")

    def __eq__(self, other: object) -> bool:
        return other.__class__ is self.__class__ and vars(self) == vars(other)

    def __hash__(self) -> int:
        values = vars(self)
        return hash((self.family, *[values[name] for name in self.names]))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in ("family", *self.names))
        return f"{type(self).__name__}({values})"

    def __lt__(self, other: Config) -> bool:
        return (FAMILIES.index(self.family), *self.numbers()) < (FAMILIES.index(other.family), *other.numbers())

    def __reduce__(self) -> Any:
        return parse_config, (self.full_text(),)

    def __str__(self) -> str:
        """The text ``family=simt ms=8 …``: the family, the paper's axes, and all other axes that differ from their
        default."""
        shown = (a for a in self.axes if a.symbol or getattr(self, a.name) != a.default)
        return " ".join((f"family={self.family}", *(f"{a.name}={a.text(getattr(self, a.name))}" for a in shown)))

    def full_text(self) -> str:
        """The text with the family and every axis as ``name=value``."""
        values = vars(self)
        known = zip(self.names, self.words, strict=True)
        return " ".join([f"family={self.family}", *[words[values[name]] for name, words in known]])

    def replace(self, **changes: int) -> Config:
        """A copy of the configuration with other values of some axes."""
        return type(self)(**{**vars(self), **changes})

    def numbers(self) -> tuple[int, ...]:
        """The number of every axis, in the order of the family's axes."""
        return tuple(getattr(self, name) for name in self.names)

    def items(self) -> Iterator[tuple[str, int]]:
        """Pairs of name and number, one for each axis."""
        return ((name, getattr(self, name)) for name in self.names)

    def values(self) -> dict[str, int | str]:
        """The family and every axis with its value: a word, or a number."""
        return {"family": self.family, **{a.name: a.value(getattr(self, a.name)) for a in self.axes}}


def declare(family: str, axes: Sequence[Axis]) -> None:
    """Declares the axes of a family. InputError: two axes have one name, or another family has an axis of
    the same name with another default or other words."""
    names = _names(axes)
    for a in axes:
        known = AXIS.get(a.name, a)
        if names.count(a.name) > 1 or a.name == "family" or not a.name.isidentifier():
            raise InputError(f"family {family!r} has the axis {a.name!r}; names must be different identifiers")
        if (known.default, known.words) != (a.default, a.words):
            raise InputError(
                f"family {family!r} has the axis {a.name!r} with default {a.default} and words {a.words}; another"
                f" family has it with {known.default} and {known.words}"
            )
    FAMILIES.append(family)
    _axes[family] = tuple(axes)
    AXIS.update({a.name: a for a in axes if a.name not in AXIS})


def retract(family: str) -> None:
    """Removes a family that ``declare`` added, and the axes that no other family has."""
    FAMILIES.remove(family)
    _classes.pop(family, None)
    own = _names(_axes.pop(family))
    used = {*COMMON, *(a.name for axes in _axes.values() for a in axes)}
    for name in own:
        if name not in used:
            del AXIS[name]


def default_family() -> str:
    """The first family, which configurations without ``family`` belong to."""
    return family_names()[0]


def family_names() -> list[str]:
    """The names of the registered families."""
    plugins.load()
    return FAMILIES


def axes_of(family: str) -> tuple[Axis, ...]:
    """The axes of a family. ConfigError: there is no such family."""
    return _class(family).axes


def _class(family: str) -> type[Config]:
    names = family_names()
    if family not in names:
        guess = closest(family, names)
        hint = f"; did you mean family={guess}?" if guess else ""
        raise ConfigError(f"config has 'family={family}'; family is one of {', '.join(names)}{hint}", "axis")
    return _classes[family]


def _unknown_axis(name: str, family: str) -> ConfigError:
    own, others = _names(_axes[family]), [f for f in FAMILIES if name in _names(_axes[f])]
    if others:
        hint = f", which is an axis of {', '.join(others)}; "
    else:
        guess = closest(name, own)
        hint = f"; did you mean {guess!r}? " if guess else "; "
    return ConfigError(f"config has {name!r}{hint}the axes of {family} are {', '.join(own)}", "axis")


def config_of_full_text(text: str) -> Config | None:
    """The configuration whose ``full_text()`` is ``text``. None: no configuration has this text."""
    family, *words = text.split(" ")
    name = family.removeprefix("family=")
    if name == family or name not in _axes or len(words) != len(_axes[name]):
        return None
    config_class = _classes[name]
    try:
        numbers = [known[word] for known, word in zip(config_class.numbers_of_words, words, strict=True)]
    except KeyError:
        return None
    config = object.__new__(config_class)  # the fields are checked
    vars(config).update(zip(config_class.names, numbers, strict=True), family=config_class.__name__)
    return config


def parse_config(text: str) -> Config:
    """The configuration that ``text`` (``family=mma ms=32 …``) describes; omitted axes have their defaults.

    ConfigError: an unknown axis or value; the message names the closest known one, or the family that has the axis.
    """
    full = config_of_full_text(text)
    if full is not None:
        return full
    given: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        if name in given:
            raise ConfigError(f"config has {name} twice: {given[name]} and {value}", "axis")
        given[name] = value
    config_class = _class(given.pop("family", default_family()))
    axes = {a.name: a for a in config_class.axes}
    values = {}
    for name, value in given.items():
        if name not in axes:
            raise _unknown_axis(name, config_class.family)
        values[name] = axes[name].parse(value)
    return config_class(**values)


@lru_cache(maxsize=1 << 10)
def _repeated(number: int, length: int) -> NDArray[np.int64]:
    """A read-only column that repeats one number without storing the copies; ``np.broadcast_to`` is slower."""
    return np.ndarray((length,), np.int64, np.int64(number).tobytes(), strides=(0,))


class Columns:
    """Many configurations, one a row, with a NumPy column for each axis. Code reads the axes as those of a ``Config``;
    ``family`` is a column of indices in FAMILIES. An axis has its default in every row if it has no column, and in the
    rows whose family lacks it."""

    def __init__(self, columns: dict[str, NDArray[np.int64]], length: int | None = None) -> None:
        if unknown := sorted(columns.keys() - AXIS.keys() - {"family"}):
            raise ConfigError(f"columns have {', '.join(unknown)}; the axes are {', '.join(AXIS)}", "axis")
        self.columns = columns
        self.length = length if length is not None else max((len(v) for v in columns.values()), default=0)

    def __len__(self) -> int:
        return self.length

    def __getattr__(self, name: str) -> NDArray[np.int64]:
        if name == "family" or name in AXIS:
            return self.column(name)
        raise AttributeError(name)

    def column(self, name: str) -> NDArray[np.int64]:
        """The values of one axis."""
        if name in self.columns:
            return self.columns[name]
        return _repeated(AXIS[name].default if name != "family" else 0, self.length)

    def take(self, rows: NDArray[Any]) -> Columns:
        """The selected rows. ``rows``: a mask or an array of indices."""
        picked = {n: v[rows] for n, v in self.columns.items()}
        return Columns(picked, int(rows.sum()) if rows.dtype == bool else len(rows))

    def numbers(self, i: int) -> dict[str, int]:
        """The values of row ``i``, by name of the column."""
        return {n: int(v[i]) for n, v in self.columns.items()}

    def row(self, i: int) -> Config:
        return config_of(int(self.family[i]), self.numbers(i))

    def replace(self, **columns: Any) -> Columns:
        """The same rows with some axes replaced by a column or a number."""
        new = {
            n: _repeated(v, self.length)
            if isinstance(v, int)
            else np.broadcast_to(np.asarray(v, np.int64), self.length)
            for n, v in columns.items()
        }
        return Columns({**self.columns, **new}, self.length)

    @classmethod
    def of(cls, configs: Sequence[Config]) -> Columns:
        names = dict.fromkeys(name for c in {c.family: c for c in configs}.values() for name in c.names)
        columns = {n: [getattr(c, n, AXIS[n].default) for c in configs] for n in names}
        columns["family"] = [FAMILIES.index(c.family) for c in configs]
        return cls({n: np.array(v, np.int64) for n, v in columns.items()}, len(configs))

    @classmethod
    def product(cls, values: dict[str, Any]) -> Columns:
        """All combinations of the given values, one a row. ``values``: the values of each axis, by name."""
        grids = np.meshgrid(*(np.asarray(v, np.int64) for v in values.values()), indexing="ij")
        return cls({n: g.ravel() for n, g in zip(values, grids, strict=True)}, grids[0].size)

    @classmethod
    def concat(cls, parts: Sequence[Columns]) -> Columns:
        names = dict.fromkeys(name for p in parts for name in p.columns)
        return cls({n: np.concatenate([p.column(n) for p in parts]) for n in names}, sum(map(len, parts)))


def packs(c: Any, name: str) -> Any:
    """True if an auxiliary kernel copies operand ``name`` to aligned rows first. ``c``: a configuration, or columns of
    many."""
    return getattr(c, f"operand_path_{name}") == PACK


def config_of(code: int, values: dict[str, int]) -> Config:
    """The configuration of the family with index ``code`` in FAMILIES. ``values``: the values of axes, by name; names
    that are no axis of the family are ignored."""
    config_class = _class(family_names()[code])
    return config_class(**{name: values[name] for name in config_class.names if name in values})


__all__ = [
    "AXIS",
    "BOUNDS_CLAMP",
    "BOUNDS_NONE",
    "BOUNDS_PREDICATE",
    "DIRECT",
    "FAMILIES",
    "PACK",
    "PDL_WITHIN",
    "REALIGN",
    "SPLIT_DISTRIBUTED",
    "SPLIT_FLAG",
    "SPLIT_LAST_CTA",
    "SPLIT_MEMSET",
    "SPLIT_WORKSPACE",
    "Axis",
    "Columns",
    "Config",
    "axes_of",
    "config_of",
    "config_of_full_text",
    "declare",
    "default_family",
    "family_names",
    "parse_config",
    "retract",
]
