"""Explains what kernels compute for a program: the step after rewriting, its instructions, and where results go."""

from __future__ import annotations

from ptxgen.expr.cost import instructions_by_pipe
from ptxgen.expr.index_sets import INDEX, possible
from ptxgen.expr.node import Node, variable
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.algebra import InnerExpression
from ptxgen.lowering.bit_products import FIRST, LAST, truth_operator, word_operator
from ptxgen.operations.task import exact_filter, joins, several
from ptxgen.operations.task.assembling import roots_of
from ptxgen.operations.task.exact_filter import candidates_of
from ptxgen.operations.task.exact_nearest import nearest_of
from ptxgen.operations.task.fast_distances import fast_distance
from ptxgen.operations.task.group_sums import FEWER, LEAST, group_sums
from ptxgen.operations.task.joined_keys import joined_keys
from ptxgen.operations.task.joins import join_of
from ptxgen.operations.task.lowering import algebra_of, in_loop, value_of
from ptxgen.operations.task.narrow_sums import is_narrow
from ptxgen.operations.task.paired_steps import with_paired_steps
from ptxgen.operations.task.printing import printed
from ptxgen.operations.task.program import Distinct, Program, Select, Top
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.symmetry import computes_half, is_symmetric

SM = 90  #: the target whose instructions are counted


def explanation(program: Program, algebra: bool = True, fast: bool = False) -> list[str]:
    """The lines of an explanation: the roles of arrays, the pairs that are computed and listed, the step, its
    instructions, and padding. ``algebra``: the program may be rewritten; ``fast``: squares of differences may be
    computed as products."""
    roles = roles_of(program)
    lines = [f"{u.role} is {u.name}[{','.join(u.axes)}], {u.dtype}" for u in roles.uses]
    lines += [f"{role} is {name}, {accumulator}" for role, name, accumulator in roles.scalars]
    lines += _pairs(roles.program)
    if len(program.outputs) > 1:
        lines += _outputs(program)
    if fast and (distance := fast_distance(roles)) is not None:
        lines.append(
            "rewriting: squares of differences are sums of squares of A and of B, computed before, and their product"
        )
        roles = roles_of(distance.program)
    if algebra and (nearest_of(roles) is not None or candidates_of(roles) is not None):
        lines.append(
            f"filter: in calls with at least {exact_filter.LEAST} steps and K from {exact_filter.LEAST_K} to"
            f" {exact_filter.DEEPEST}, where tensor cores are {exact_filter.FASTER} times as fast as scalar"
            f" instructions, they list candidates in tf32, with a bound of their error, and each candidate is computed"
            f" in f32"
        )
    if algebra and group_sums(roles) is not None:
        lines.append(
            f"rewriting: sums of A and of B in groups, and their product, take (M + N)*K steps; in calls with at least"
            f" {LEAST} steps and {FEWER} pairs (i, j) for each pair of groups"
        )
    if algebra and join_of(roles) is not None:
        x, y = (key.value for key in joined_keys(program.when) or ())
        lines.append(
            f"join: rows in the order of {x} and columns in that of {y}, whose tiles without equal keys are skipped; in"
            f" calls with at least {joins.LEAST} steps ({joins.LEAST_PRODUCTS} on tensor cores), and {joins.COMPARISON}"
            f" for each pair of rows and of columns"
        )
    if algebra and computes_half(roles):
        lines.append(
            "rewriting: (i, j) and (j, i) have the same reduction, which is computed for i <= j; tiles without such a"
            " pair are skipped"
        )
    elif is_symmetric(roles) and program.when is None:
        lines.append(
            "pairs: (i, j) and (j, i) have the same reduction; `when (i < j)` computes one of them, and skips tiles"
        )
    loop, whole = in_loop(roles, algebra)
    accumulator, wide = roles.program.accumulator, loop.program.accumulator
    if accumulator != wide:
        steps = "are rounded to" if type_of(accumulator).floating else "wrap around in"
        lines.append(f"reduction: {accumulator} is computed in {wide}, from steps that {steps} {accumulator}")
    elif loop.program is not roles.program and whole.op != "variable":
        lines.append(f"rewriting: terms without k leave the loop, whose reduction becomes {printed(whole)}")
    inner = algebra_of(loop, algebra)
    if not isinstance(inner, InnerExpression):
        return [*lines, "step: a sum of products, which all families of GEMMs compute, tensor cores among them"]
    results = [value_of(program, x, whole) for output in roles.program.outputs for x in roots_of(output)]
    results += [] if roles.program.when is None else [roles.program.when]
    if algebra:
        lines += _bits(inner, results)
    written, computed = printed(roles.program.step), printed(inner.step)
    lines.append(f"step: {computed}" + (f", rewritten from {written}" if computed != written else ""))
    lines.append(
        f"reduction: {inner.reduce} in {inner.type}, from {inner.identity}"
        if inner.state is None
        else f"reduction: {inner.reduce}, the position and the value, {inner.state.type}, in registers"
    )
    pipes = instructions_by_pipe(inner.next, SM, {inner.a: "a", inner.b: "b"})
    lines.append(f"instructions a step: {', '.join(f'{n:g} {pipe}' for pipe, n in pipes.items() if n)} (sm_{SM})")
    paired = with_paired_steps(inner, [u.dtype for u in roles.uses[:2]], is_narrow(roles.program), results).paired
    if paired is not None:
        pipes = instructions_by_pipe(paired.next, SM, {paired.a: "a", paired.b: "b"}, contract=False)
        counts = ", ".join(f"{n:g} {pipe}" for pipe, n in pipes.items() if n)
        lines.append(f"pairs of columns: two steps at once on {paired.type}, {counts} (sm_{SM})")
    lines.append(
        "remainder of K: padded with zeros, which do not change the result"
        if inner.pads_with_zero
        else "remainder of K: a loop of single steps, because zeros would change the result"
    )
    return lines


def _bits(inner: InnerExpression, results: list[Node]) -> list[str]:
    """The line on a step that tensor cores compute by counting bits; empty for other steps."""
    of_bytes, of_words = truth_operator(inner), word_operator(inner, results)
    if of_bytes is None and of_words is None:
        return []
    counted = "common" if "&" in (of_bytes, of_words) else "different"
    packed = "truth values are packed into words of 32 bits, and " if of_bytes else ""
    return [
        f"rewriting: on sm_{FIRST} to sm_{LAST} {packed}tensor cores count {counted} bits, where the kernels of the "
        "step below take longer"
    ]


def _outputs(program: Program) -> list[str]:
    """Lines on the kernels of several outputs."""
    names, count = ", ".join(x.name for x in program.outputs), len(program.outputs)
    stored = several.stored_output(program)
    held = f"of {stored.name}" if stored else f"of a matrix of up to {several.MOST_BYTES >> 20} MiB"
    least = count + (stored is None)
    return [
        f"outputs: {names}; {least} kernels if K is {several.LEAST_K} or more: others read the elements {held}; else"
        f" {count} kernels, each with the reduction"
    ]


def _pairs(program: Program) -> list[str]:
    """Lines on the pairs that are computed, and on those that are listed."""
    lines = []
    if program.when is not None:
        known = possible(program.when, {name: (variable(name, INDEX),) * 2 for name in ("i", "j", "M", "N", "K")})
        tiles = "computed by whole tiles" if known is None else "tiles without such a pair are not computed"
        lines.append(f"pairs: {printed(program.when)}; {tiles}")
    for x in program.outputs:
        if isinstance(x, Distinct):
            keys = f"{printed(x.row)} and {printed(x.column)}"
            lines.append(
                f"distinct {x.name}: {keys} if {printed(x.value)}; kernels mark groups, and list the marked ones"
            )
        if isinstance(x, Top):
            what, of = "greatest" if x.greatest else "least", f"of each {x.axis}" if x.axis else "of all pairs"
            lines.append(
                f"best {x.name}: the {printed(x.count)} {what} {printed(x.value)} {of}; kernels order a list of pairs"
            )
        if isinstance(x, Select):
            values = ", ".join(map(printed, x.values))
            lines.append(
                f"list {x.name}: {values} if {printed(x.condition)}; each warp reserves elements by one atomic"
            )
    return lines
