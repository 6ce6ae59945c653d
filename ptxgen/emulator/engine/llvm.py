"""Compiles straight-line code to machine code: a function executes consecutive instructions for one lane after another.

Registers are the rows that the NumPy steps use: a function loads the registers of a lane, computes in machine
registers, and stores the changed ones. LLVM generates code without optimisation, in about 0.1 ms for each instruction.
Results equal those of NumPy bit for bit; instructions for which that is impossible are not compiled.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm

from ptxgen.emulator.ops.operands.emitter import Emitter, Row


class Compiler:
    """LLVM for this host, without optimisation. It owns the compiled code."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple()
        self.machine = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=0, jit=True
        )
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)
        self.modules = 0

    def compile(self, emitters: list[tuple[Emitter, set[Row]]]) -> list[Any]:
        """Functions of (first lane, past-the-last lane, mask, table), one for each pair (emitter, rows that are in use
        after the function).

        The table has the pointers that ``Emitter.table`` numbers.
        """
        self.modules += 1
        names = [f"run_{self.modules}_{i}" for i in range(len(emitters))]
        declared = sorted(set().union(*(e.declared for e, _ in emitters)))
        texts = [e.function(name, live) for (e, live), name in zip(emitters, names, strict=True)]
        module = llvm.parse_assembly("\n".join([*declared, *texts]))
        self.engine.add_module(module)
        self.engine.finalize_object()
        function_type = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        return [function_type(self.engine.get_function_address(name)) for name in names]
