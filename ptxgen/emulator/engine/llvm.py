"""Straight-line code to machine code: one function a run of instructions, which goes through the lanes one by one.

Registers are the same rows that NumPy works on: a function loads what it needs of a lane, keeps it in machine
registers, and stores what it has changed. Code generation is LLVM's without any optimisation, which takes about 0.1 ms
an instruction. Results are NumPy's bit for bit; an instruction that cannot be done so is left to NumPy.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm

from ptxgen.emulator.engine.jit_emitter import Emitter


class Compiler:
    """LLVM for this machine, without optimisation. The code goes with it."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple()
        self.machine = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=0, jit=True
        )
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)
        self.modules = 0

    def compile(self, emitters: list[Emitter]) -> list[Any]:
        """A function of (first lane, the one past the last, mask, table) for each."""
        self.modules += 1
        names = [f"run_{self.modules}_{i}" for i in range(len(emitters))]
        declared = sorted(set().union(*(e.declared for e in emitters)))
        texts = [e.function(name) for e, name in zip(emitters, names, strict=True)]
        module = llvm.parse_assembly("\n".join([*declared, *texts]))
        self.engine.add_module(module)
        self.engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        return [kind(self.engine.get_function_address(name)) for name in names]
