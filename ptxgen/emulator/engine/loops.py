"""Loop analysis: barriers that an iteration of the loop around them may skip."""

from __future__ import annotations


def dominators(after: list[list[int]]) -> list[int]:
    """For each basic block, its dominators: the blocks on every path from the first block, as bits of an integer."""
    every = (1 << len(after)) - 1
    before: list[list[int]] = [[] for _ in after]
    for block, following in enumerate(after):
        for other in following:
            before[other].append(block)
    out = [1] + [every] * (len(after) - 1)
    changed = True
    while changed:
        changed = False
        for block in range(1, len(after)):
            common = every
            for other in before[block]:
                common &= out[other]
            common |= 1 << block
            if common != out[block]:
                out[block], changed = common, True
    return out


def conditional(after: list[list[int]], barriers: list[int]) -> dict[int, int]:
    """The basic blocks among ``barriers``, each of which ends in a barrier, that an iteration of the innermost loop
    around them may skip, with the first block of that loop.

    ``after``: the successors of each block.
    """
    if not any(other <= block for block, following in enumerate(after) for other in following):
        return {}
    above = dominators(after)
    ends: dict[int, list[int]] = {}
    for block, following in enumerate(after):
        for other in following:
            if above[block] >> other & 1:
                ends.setdefault(other, []).append(block)
    before: list[list[int]] = [[] for _ in after]
    for block, following in enumerate(after):
        for other in following:
            before[other].append(block)
    bodies: dict[int, set[int]] = {}
    for first, last in ends.items():
        body, todo = {first}, list(last)
        while todo:
            block = todo.pop()
            if block not in body:
                body.add(block)
                todo += before[block]
        bodies[first] = body
    out = {}
    for barrier in barriers:
        around = [first for first, body in bodies.items() if barrier in body]
        if around:
            first = min(around, key=lambda f: len(bodies[f]))
            if not all(above[block] >> barrier & 1 for block in ends[first]):
                out[barrier] = first
    return out
