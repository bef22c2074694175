#!/usr/bin/env python3
"""Hold the sources against the house rules: layers, cycles, lengths of functions and files.

    scripts/check-house.py [ROOT]

A file of a layer includes its own layer or lower ones; net, tc and store do not see each other; a header
include/evb/LAYER/x.h belongs to src/LAYER/x*.c or holds all of its code itself. Prints FILE:LINE: what is wrong, and exits 1.
"""
import os
import re
import sys

LEVELS = [["base"], ["protocol"], ["core", "format", "tc-model"], ["conf"], ["sys"], ["net", "tc", "store"], ["data"],
          ["node"], ["launch"], ["traffic"], ["remote"], ["lab"], ["cmd"]]
LEVEL = {layer: level for level, layers in enumerate(LEVELS) for layer in layers}
FUNCTION_MAX, FILE_MAX = 70, 500
# Headers without a source file of their name: all code in them, or a table that several files fill.
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
FUNCTION = re.compile(r"^[A-Za-z_][^;=]*\)\s*$")
DECLARED = re.compile(r"^(?!typedef|static inline|#|\s|/|\*)[A-Za-z_].*[a-z0-9_]+\(.*\)(?:\s*__attribute__.*)?;\s*$", re.M)


def sources(root):
    for top in ("src", "include", "tests"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def layer_of(path):
    parts = path.split(os.sep)
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else "main"
    if parts[:2] == ["include", "evb"]:
        return parts[2]
    return None


def check_includes(path, lines, graph):
    layer = layer_of(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match or not match[1].startswith("evb/"):
            continue
        target = match[1].split("/")[1]
        graph.setdefault(path, []).append(os.path.join("include", *match[1].split("/")))
        if layer is None or layer == "main":
            continue
        if layer not in LEVEL or target not in LEVEL:
            yield number, f"layer {layer if layer not in LEVEL else target} is not one of the house's"
        elif LEVEL[target] > LEVEL[layer] or (LEVEL[target] == LEVEL[layer] and target != layer):
            yield number, f"{layer} includes {match[1]}: a layer sees itself and lower ones"


def check_lengths(path, lines):
    if len(lines) > FILE_MAX:
        yield 1, f"{len(lines)} lines, at most {FILE_MAX}"
    begin = None
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{" and number > 1 and (FUNCTION.match(lines[number - 2]) or lines[number - 2].rstrip().endswith(")")):
            begin = number
        elif line.rstrip() == "}" and begin:
            if number - begin + 1 > FUNCTION_MAX:
                yield begin, f"function of {number - begin + 1} lines, at most {FUNCTION_MAX}"
            begin = None


def check_home(root, path, text):
    parts = path.split(os.sep)
    if parts[0] != "include" or not DECLARED.search(text):
        return
    stem = parts[-1][:-2]
    folder = os.path.join(root, "src", parts[2])
    if not os.path.isdir(folder):
        yield 1, f"src/{parts[2]} does not exist"
        return
    declared = set(re.findall(r"\b([a-z0-9_]+)\(", " ".join(DECLARED.findall(text))))
    for name in os.listdir(folder):
        if not name.endswith(".c"):
            continue
        if name[:-2] == stem or name.startswith(stem):
            return
        with open(os.path.join(folder, name)) as f:
            if any(re.search(rf"^[a-z].*\b{function}\(", f.read(), re.M) for function in declared):
                return
    yield 1, f"no file of src/{parts[2]} belongs to it"


def find_cycle(graph):
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        path.append(node)
        for target in graph.get(node, []):
            cycle = visit(target)
            if cycle:
                return cycle
        path.pop()
        done.add(node)
        return None

    for node in sorted(graph):
        cycle = visit(node)
        if cycle:
            return cycle
    return None


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    graph, wrong, n = {}, 0, 0
    for path in sources(root):
        with open(os.path.join(root, path)) as f:
            text = f.read()
        lines = text.split("\n")[:-1]
        n += 1
        for check in (check_includes(path, lines, graph), check_lengths(path, lines), check_home(root, path, text)):
            for number, what in check:
                print(f"{path}:{number}: {what}")
                wrong += 1
    cycle = find_cycle(graph)
    if cycle:
        print(f"{cycle[0]}:1: a cycle of includes: {' -> '.join(cycle)}")
        wrong += 1
    print(f"house rules: {n} files, {wrong} findings", file=sys.stderr)
    return 1 if wrong or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
