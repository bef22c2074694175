#!/usr/bin/env python3
"""Compile src/run/port_program.c, the BPF programs of a switch port, to src/run/port_program.inc.

    scripts/port-program.py [--check]

Needs clang. --check only compares, and exits with status 1 if the programs differ, or with 77 if this clang is
not the one that compiled the file: another version may choose other instructions.
"""
import pathlib
import struct
import subprocess
import sys
import tempfile

RUN = pathlib.Path(__file__).resolve().parent.parent / "src/run"
PROGRAMS = ["decision", "stamp"]


def compiler():
    try:
        return subprocess.run(["clang", "-dumpversion"], stdout=subprocess.PIPE, text=True, check=True).stdout.split(".")[0]
    except FileNotFoundError:
        sys.exit("port-program.py: clang is missing") if "--check" not in sys.argv else sys.exit(77)


def compile_programs():
    """The sections of the compiled file, by name."""
    with tempfile.TemporaryDirectory() as where:
        whole = pathlib.Path(where) / "port_program.o"
        include = subprocess.run(["cc", "-print-multiarch"], stdout=subprocess.PIPE, text=True).stdout.strip()
        subprocess.run(["clang", "-target", "bpfel", "-mcpu=v3", "-O2", "-ffreestanding", "-Wall", "-Wextra", "-Werror",
                        f"-I{RUN.parent}", f"-I/usr/include/{include}", "-c", RUN / "port_program.c", "-o", whole], check=True)
        elf = whole.read_bytes()
    # The header of the file, and those of its sections, as elf(5) has them.
    table, size, n, names = struct.unpack_from("<Q", elf, 40) + struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(n)]
    text = elf[headers[names][4]:]
    return {text[h[0]:text.index(b"\0", h[0])].decode(): elf[h[4]:h[4] + h[5]] for h in headers}


def instructions(code):
    """The members of a struct bpf_insn."""
    for op, registers, offset, value in struct.iter_unpack("<BBhi", code):
        yield f"{{{op:#x}, {registers & 15}, {registers >> 4}, {offset}, {value}}},"


def make(version):
    sections = compile_programs()
    lines = [f"/* Compiled from port_program.c by scripts/port-program.py, with clang {version}. */"]
    for name in PROGRAMS:
        lines.append(f"static const struct bpf_insn {name}_program[] = {{")
        line = ""
        for word in instructions(sections[f"port_{name}"]):
            if len(line) + len(word) > 108:
                lines.append(line)
                line = ""
            line += word if not line else " " + word
        lines += [line, "};"]
    return "\n".join(lines) + "\n"


def main():
    version, file = compiler(), RUN / "port_program.inc"
    if "--check" not in sys.argv:
        file.write_text(make(version))
        return
    before = file.read_text()
    if f"clang {version}." not in before.splitlines()[0]:
        print(f"SKIPPED: port_program.inc is not from clang {version}")
        sys.exit(77)
    if make(version) != before:
        sys.exit("src/run/port_program.inc differs from port_program.c; run scripts/port-program.py")


main()
