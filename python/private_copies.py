# SPDX-License-Identifier: Apache-2.0
"""Gives a module shared libraries of its own: private_copies.py MODULE FOLDER NAME ...

Copies each library libNAME.so.N that MODULE needs into FOLDER under a name of the same length (libtbb.so.12 becomes libqkb.so.12), and
renames it inside MODULE and the copies, too. A process may then have a second libtbb.so.12 from another package: the loader takes each
for a library of its own. Symbols that the loader would keep once for the whole process (STB_GNU_UNIQUE) become ordinary ones in the
copies.
"""

import os
import struct
import subprocess
import sys

DT_NEEDED, DT_SONAME = 1, 14


class Elf:
    """A 64-bit little-endian shared library as bytes that can be changed in place."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = bytearray(file.read())
        if self.bytes[:6] != b"\x7fELF\x02\x01":
            raise SystemExit(f"{path} is no 64-bit little-endian ELF file")
        offset, size, count = struct.unpack_from("<Q", self.bytes, 0x28)[0], *struct.unpack_from("<HH", self.bytes, 0x3A)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", self.bytes, offset + i * size) for i in range(count)]
        dynamic = next(s for s in self.sections if s[1] == 6)
        self.strings = self.sections[dynamic[6]]
        self.entries = [struct.unpack_from("<qQ", self.bytes, dynamic[4] + i) for i in range(0, dynamic[5], 16)]

    def text(self, at):
        start = self.strings[4] + at
        return bytes(self.bytes[start : self.bytes.index(0, start)]).decode()

    def rename(self, names):
        for tag, value in self.entries:
            if tag in (DT_NEEDED, DT_SONAME) and self.text(value) in names:
                start, new = self.strings[4] + value, names[self.text(value)].encode()
                self.bytes[start : start + len(new)] = new

    def share_nothing(self):
        """Makes unique symbols (binding 10) global ones (binding 1)."""
        for s in self.sections:
            if s[1] != 11:  # SHT_DYNSYM
                continue
            for at in range(s[4], s[4] + s[5], 24):
                info = self.bytes[at + 4]
                if info >> 4 == 10:
                    self.bytes[at + 4] = 1 << 4 | info & 15

    def save(self, path):
        with open(path + ".part", "wb") as file:
            file.write(self.bytes)
        os.chmod(path + ".part", 0o755)
        os.replace(path + ".part", path)


def private_name(name):
    return "libqk" + name[5:]


def main(module, folder, wanted):
    own = Elf(module)
    places = {}
    for line in subprocess.run(["ldd", module], check=True, capture_output=True, text=True).stdout.splitlines():
        words = line.split()
        if len(words) > 2 and words[1] == "=>":
            places[words[0]] = words[2]
    names = {n: private_name(n) for n in places if n.split(".so")[0].removeprefix("lib") in wanted}
    os.makedirs(folder, exist_ok=True)
    for name, new in names.items():
        copy = Elf(os.path.realpath(places[name]))
        copy.rename(names)
        copy.share_nothing()
        copy.save(os.path.join(folder, new))
    own.rename(names)
    own.save(module)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
