#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs a folder as an archive whose bytes depend on the files' names and bytes alone: pack.py FOLDER ARCHIVE.tar.xz."""
import io
import lzma
import sys
import tarfile
from pathlib import Path


def pack(folder, archive):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size = path.stat().st_size
            tar.addfile(entry, io.BytesIO(path.read_bytes()))
    archive.write_bytes(lzma.compress(plain.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{archive}: {archive.stat().st_size} bytes")


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
