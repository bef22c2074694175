#!/usr/bin/env python3
"""Compile the BPF programs, each of FILES, to a file of instructions beside it that ends in .inc.

    scripts/bpf-programs.py [--check]

Needs clang. --check only compares, and exits with status 1 if the programs differ, or with 77 if this clang is
not the one that compiled the files: another version may choose other instructions.
"""
import pathlib
import struct
import subprocess
import sys
import tempfile

SRC = pathlib.Path(__file__).resolve().parent.parent / "src"
# The sections with the programs, by file.
FILES = {"run/port_program": ["port_decision", "port_stamp"], "shape/kernel/edt_program": ["edt_stamp"]}


def compiler():
    try:
        return subprocess.run(["clang", "-dumpversion"], stdout=subprocess.PIPE, text=True, check=True).stdout.split(".")[0]
    except FileNotFoundError:
        sys.exit("bpf-programs.py: clang is missing") if "--check" not in sys.argv else sys.exit(77)


def compile_programs(source):
    """The sections of the compiled file, by name."""
    with tempfile.TemporaryDirectory() as where:
        whole = pathlib.Path(where) / "program.o"
        include = subprocess.run(["cc", "-print-multiarch"], stdout=subprocess.PIPE, text=True).stdout.strip()
        subprocess.run(["clang", "-target", "bpfel", "-mcpu=v3", "-O2", "-ffreestanding", "-Wall", "-Wextra", "-Werror",
                        f"-I{SRC}", f"-I/usr/include/{include}", "-c", source, "-o", whole], check=True)
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


def make(source, names, version):
    sections = compile_programs(source)
    lines = [f"/* Compiled from {source.name} by scripts/bpf-programs.py, with clang {version}. */"]
    for name in names:
        lines.append(f"static const struct bpf_insn {name.split('_')[-1]}_program[] = {{")
        line = ""
        for word in instructions(sections[name]):
            if len(line) + len(word) > 108:
                lines.append(line)
                line = ""
            line += word if not line else " " + word
        lines += [line, "};"]
    return "\n".join(lines) + "\n"


def main():
    version, skipped = compiler(), []
    for name, sections in FILES.items():
        source, file = SRC / f"{name}.c", SRC / f"{name}.inc"
        if "--check" not in sys.argv:
            file.write_text(make(source, sections, version))
        elif f"clang {version}." not in file.read_text().splitlines()[0]:
            skipped.append(f"{file.name} is not from clang {version}")
        elif make(source, sections, version) != file.read_text():
            sys.exit(f"src/{name}.inc differs from {source.name}; run scripts/bpf-programs.py")
    if skipped:
        print(f"SKIPPED: {', '.join(skipped)}")
        sys.exit(77)


main()
