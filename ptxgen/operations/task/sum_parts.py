"""The problems that calls compute in place of sums of products in groups: sums of rows, sums of columns, and the
product of both."""

from __future__ import annotations

from ptxgen.lowering.aggregate import REJECTED
from ptxgen.operations.task.group_sums import GroupSums, Sums, group_sums, pays
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import Program
from ptxgen.operations.task.roles import roles_of
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.operation import Part, Parts

NOTHING = "nothing"  #: name of the memory for operands without elements, and for counts that are not read


def sums_of(p: Task) -> GroupSums | None:
    """The sums whose product is the result of a task. None: the result is not such a product, or the task has a
    batch."""
    return group_sums(p.roles) if p.groups and p.batch == 1 else None


def parts_of(p: Task) -> Parts | None:
    """The problems that a call of a task computes in its place. None: a call computes the task itself."""
    sums = sums_of(p) if p.algebra else None
    packed = all(ld == columns for ld, (_, columns) in zip((p.lda, p.ldb), p.stored, strict=False))
    extents = {"i": p.m, "j": p.n, "k": p.k}
    if sums is None or not packed or p.layout != p.roles.layout or not pays(extents, p.group_extents):
        return None
    steps, memory = [], {NOTHING: 16}
    for operand, each, n in zip("AB", (sums.rows, sums.columns), p.group_extents, strict=True):
        shape, name = each.shape(n, p.k), f"sums of {operand}"
        memory[name] = shape[0] * shape[1] * p.accumulator.bytes
        steps.append(_of_sums(p, each, shape, name))
    rows, columns = p.group_extents
    zeros, product = sums.products(p.group_extents)
    if zeros is not None:
        steps.append(_of_product(p, zeros, rows, columns, 0))
    steps.append(_of_product(p, product, rows, columns, p.k))
    moved = sum(x * y * dtype(p.roles.use(role).dtype).bytes for role, (x, y) in zip("AB", p.stored, strict=False))
    note = f"{len(steps)} kernels: sums of rows and of columns in groups, their product"
    return Parts(tuple(steps), memory, moved, note)


def _of_sums(p: Task, sums: Sums, shape: tuple[int, int], name: str) -> Part:
    """The part that computes the sums of an operand. ``shape``, ``name``: the shape and name of the array of sums."""
    roles, operand = roles_of(sums.program), "AB".index(sums.array)
    rows, columns = p.stored[operand]
    groups = ",".join(map(str, shape))
    problem = Task(rows, columns, 0, text=Task.text_of(roles), groups=groups, deterministic=p.deterministic)
    names = {"X": sums.array, "key": sums.key}
    arrays = {u.role: names[u.name] for u in roles.others}
    return Part(name, problem, {"A": NOTHING, "B": NOTHING, "C": name, REJECTED: NOTHING, **arrays})


def _of_product(p: Task, program: Program, m: int, n: int, k: int) -> Part:
    """The part that computes the product of the sums; if ``k`` is 0, the part that stores zeros before it."""
    problem = Task(m, n, k, text=Task.text_of(roles_of(program)), deterministic=p.deterministic)
    names = ("sums of A", "sums of B") if k else (NOTHING, NOTHING)
    return Part("product" if k else "zeros", problem, {"A": names[0], "B": names[1], "C": "C"})
