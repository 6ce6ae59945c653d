"""Digests of machine code (SASS), which compare kernels that have different PTX texts.

A cubin is an ELF file. The digest covers instructions, relocations, constants, shared memory and the attributes of each
kernel (registers, barriers, parameters, cluster). It excludes symbol and string tables, notes (ptxas options), debug
information and section offsets.
"""

from __future__ import annotations

import hashlib
import struct

from ptxgen.codegen.source import Source
from ptxgen.errors import CorruptError
from ptxgen.runtime.assemble import assemble, cached, find_ptxas, version

_SECTIONS = (".text.", ".rel.text.", ".rela.text.", ".nv.info", ".nv.constant", ".nv.shared", ".nv.local", ".nv.global")
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOBITS = 8


def digest(cubin: bytes) -> str:
    """The digest of a cubin's machine code: 16 hexadecimal digits. CorruptError: ``cubin`` is not a 64-bit ELF file."""
    try:
        if cubin[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit ELF header")
        head = _HEADER.unpack_from(cubin)
        offset, count, names_at = head[5], head[11], head[12]
        sections = [_SECTION.unpack_from(cubin, offset + i * _SECTION.size) for i in range(count)]
        names = _content(cubin, sections[names_at])
        contents = []
        for section in sections:
            name = names[section[0] : names.index(b"\0", section[0])].decode()
            if name.startswith(_SECTIONS):
                # sh_link and the low 24 bits of sh_info are table indices; the high 8 bits are the register count
                facts = name, section[1], section[2], section[5], section[7] >> 24, section[8]
                contents.append((facts, _content(cubin, section)))
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptError(f"cubin of {len(cubin)} bytes is damaged: {error}") from error
    sha = hashlib.sha256()
    for facts, content in sorted(contents):
        sha.update(repr((facts, len(content))).encode())
        sha.update(content)
    return sha.hexdigest()[:16]


def _content(cubin: bytes, section: tuple[int, ...]) -> bytes:
    return b"" if section[1] == _NOBITS else cubin[section[4] : section[4] + section[5]]


def machine_code(source: Source) -> str:
    """A text that identifies the machine code of ``source``: the release of ptxas, the target and the digest, separated
    by spaces. Empty: there is no ptxas. AssembleError: ptxas rejected the text."""
    ptxas = find_ptxas()
    return "" if ptxas is None else f"{version(ptxas)} {source.target} {digest(assemble(source).cubin)}"


def cached_machine_code(source_digest: str, target: str) -> str:
    """The text of ``machine_code`` for the source with this digest. Empty: the disk cache does not have its cubin."""
    ptxas, made = find_ptxas(), cached(source_digest, target)
    return "" if ptxas is None or made is None else f"{version(ptxas)} {target} {digest(made.cubin)}"
