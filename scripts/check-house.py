#!/usr/bin/env python3
"""Check the sources against the house rules.

    scripts/check-house.py [ROOT]

A file includes its own layer and lower ones; layers on one level do not see each other. Includes and calls form
no circles. Functions and lines have a largest size, and folders of sources a smallest one; a file of more than 800 lines
is only mentioned. A folder with a source has a README.md of a few lines. A name appears once in the tree. A source
includes its own header first, so each header compiles alone. Names do not use words that stand for something else. Every declared function is defined in the layer of its
header, and every public one is used by another file. Comments and documents name files that exist. A library links only
what its files include. No script in tests is executable: meson runs it with its own Python, which has Debian's packages.
A change of a file with a thread or with data of several threads starts tests with the thread sanitizer in test.sh.

Prints FILE:LINE: and the finding, and exits with status 1 if there is one.
"""
import os
import re
import sys

LEVELS = [["base"], ["protocol"], ["core", "format", "shape/model"], ["conf"], ["sys"], ["net", "shape/kernel", "store"], ["live"], ["data"],
          ["node", "stream", "frontend"], ["sim"], ["run"], ["cmd"]]
LEVEL = {layer: level for level, layers in enumerate(LEVELS) for layer in layers}
FUNCTION_MAX, WIDTH_MAX, FOLDER_MIN = 70, 110, 5
FILE_LONG = 800
README_MAX = 12
# Words that stand for something else in names: say what is received, recorded, missing, previous.
STRAINED = {"hear", "hears", "heard", "note", "notes", "noted", "owe", "owes", "lacks", "door", "doors", "nap", "naps", "former", "liar",
            "liars", "deaf", "abuse", "stranger", "strangers"}
# A thread, or what threads share.
THREAD = re.compile(r"\b(?:pthread_(?!sigmask)|thread_start\(|_Atomic\b)")
# Memory that processes share.
OF_PROCESSES = {"src/cmd/bench/bench_memcpy.c", "src/run/long_path.c", "src/run/long_path.h", "src/stream/paths/path_internal.h"}
# Counters that any thread may read, and priorities of processes: including these makes no thread.
HARMLESS = OF_PROCESSES | {"src/data/obstacle.h", "src/data/stats.h", "src/sys/thread.h"}
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
# Named in comments, and not ours.
FOREIGN_FILES = {"sysexits.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
FUNCTION = re.compile(r"^[A-Za-z_][^;=]*\)\s*$")
DECLARED = re.compile(r"^(?!typedef|static inline|#|\s|/|\*)[A-Za-z_].*[a-z0-9_]+\(.*\)(?:\s*__attribute__.*)?;\s*$", re.M)


def sources(root):
    for top in ("include", "src", "tests"):
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def files_of(folder):
    return [os.path.join(where, name) for where, _, names in os.walk(folder) for name in sorted(names)
            if name.endswith((".c", ".h"))]


def layer_of(path):
    parts = path.split(os.sep)
    if parts[0] == "src":
        if parts[1] == "shape":
            return "/".join(parts[1:3])
        return parts[1] if len(parts) > 2 else "main"
    return None


def included(path, name, paths):
    """The file that `#include "name"` in path means; None: it is not ours."""
    for at in (os.path.normpath(os.path.join(os.path.dirname(path), name)), os.path.join("src", name)):
        if at in paths:
            return at
    return None


def check_includes(path, lines, paths, graph):
    layer = layer_of(path)
    own = included(path, os.path.basename(path)[:-2] + ".h", paths) if path.endswith(".c") else None
    first = True
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        target_path = included(path, match[1], paths) if match else None
        if own and first and line.startswith("#include"):
            first = False
            if target_path != own and layer_of(path):
                yield number, f"{own} comes first"
        if not target_path:
            continue
        graph.setdefault(path, []).append(target_path)
        target = layer_of(target_path)
        if layer in (None, "main") or target is None:
            continue
        if layer not in LEVEL or target not in LEVEL:
            yield number, f"layer {layer if layer not in LEVEL else target} is not one of the house's"
        elif LEVEL[target] > LEVEL[layer] or (LEVEL[target] == LEVEL[layer] and target != layer):
            yield number, f"{layer} includes {match[1]}: a layer sees itself and lower ones"


def check_lengths(path, lines):
    if len(lines) > FILE_LONG:
        print(f"note: {path} has {len(lines)} lines", file=sys.stderr)
    begin = None
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{" and number > 1 and (FUNCTION.match(lines[number - 2]) or lines[number - 2].rstrip().endswith(")")):
            begin = number
        elif line.rstrip() == "}" and begin:
            if number - begin + 1 > FUNCTION_MAX:
                yield begin, f"function of {number - begin + 1} lines, at most {FUNCTION_MAX}"
            begin = None


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


COMMENT = re.compile(r"/\*.*?\*/", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
DEFINITION = re.compile(r"^(?!static|typedef|else|#|\s|/|\*|\})[A-Za-z_][^;{}()=]*?\b(\w+)\([^;{}]*\)\n\{", re.M)
TABLE = re.compile(r"^(?!static|extern)(?:const )?struct \w+ (?:\*?const )?(\w+)(?:\[\w*\])? = ", re.M)
NAMED_FILE = re.compile(r"(?<![\w/<-])([a-z0-9_-]+(?:/[a-z0-9_-]+)*\.[ch])\b")
# Each library, and the header that requires linking with it.
LIBRARIES = {"zlib": "zlib.h", "jansson": "jansson.h", "inih": "ini.h", "libmnl": "libmnl/", "libnl": "netlink/",
             "libnl_route": "netlink/route/", "threads": "pthread.h", "libm": "math.h",
             "libmicrohttpd": "microhttpd.h", "ncurses": "curses.h",
             "libsodium": "sodium.h"}


def code_of(text):
    """The text without comments and strings; lines stay where they are."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])
    return STRING.sub(blank, COMMENT.sub(blank, text))


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def check_folders(paths):
    """A folder of sources holds some files, and their names tell them apart in the whole tree."""
    homes, sizes = {}, {}
    for path in paths:
        if layer_of(path) not in (None, "main"):
            homes.setdefault(os.path.basename(path), []).append(path)
            sizes[os.path.dirname(path)] = sizes.get(os.path.dirname(path), 0) + 1
    for name, found in homes.items():
        if len(found) > 1:
            yield found[1], 1, f"another file has this name: {found[0]}"
    for folder, size in sizes.items():
        if size < FOLDER_MIN:
            yield folder, 1, f"{size} files, at least {FOLDER_MIN}"


def check_width(path, lines):
    for number, line in enumerate(lines, 1):
        if len(line) > WIDTH_MAX:
            yield number, f"{len(line)} columns, at most {WIDTH_MAX}"


def check_words(path, text):
    code = NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for match in re.finditer(r"\b[A-Za-z_]\w*\b", code):
        for word in sorted(STRAINED & set(match[0].lower().split("_"))):
            yield line_of(code, match.start()), f'the name {match[0]} has the word "{word}"; docs/glossary.md has the terms'


def check_named_files(path, text, names):
    """A comment refers only to files that exist."""
    for comment in COMMENT.finditer(text):
        for match in NAMED_FILE.finditer(comment[0]):
            name = match[1]
            # The kernel's files have longer paths, and those of the C library stand in angle brackets.
            layer, _, base = name.rpartition("/")
            exists = layer in names.get(base, ()) if layer in LEVEL else bool(layer) or base in names
            if not exists and name not in FOREIGN_FILES:
                yield line_of(text, comment.start() + match.start()), f"{name} does not exist"


def readmes(root):
    return sorted(os.path.relpath(os.path.join(folder, "README.md"), root)
                  for folder, _, names in os.walk(os.path.join(root, "src")) if "README.md" in names)


def check_readmes(root, paths):
    """Each folder with a source says in a few lines what it is for."""
    found = readmes(root)
    for folder in sorted({os.path.dirname(path) for path in paths if path.endswith(".c") and layer_of(path) not in (None, "main")}):
        if os.path.join(folder, "README.md") not in found:
            yield folder, 1, "no README.md"
    for path in found:
        with open(os.path.join(root, path)) as f:
            length = len(f.readlines())
        if length > README_MAX:
            yield path, 1, f"{length} lines, at most {README_MAX}"


def check_documents(root, paths):
    """A document, too, refers only to sources that exist: whole, below src, or by the end of their path."""
    ends = {path[i:] for path in paths for i in [0] + [at + 1 for at, c in enumerate(path) if c == os.sep]}
    documents = [name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md") if os.path.exists(os.path.join(root, name))]
    documents += [os.path.join("docs", name) for name in sorted(os.listdir(os.path.join(root, "docs"))) if name.endswith(".md")] \
        if os.path.isdir(os.path.join(root, "docs")) else []
    for path in documents + readmes(root):
        with open(os.path.join(root, path)) as f:
            text = f.read()
        for match in re.finditer(r"`([a-z0-9_/-]+\.[ch])`", text):
            if match[1] not in ends | FOREIGN_FILES:
                yield path, line_of(text, match.start()), f"{match[1]} does not exist"


def symbols(texts):
    """Every function and table that another file may use: its name, and the file that defines it."""
    defined = {}
    for path, code in texts.items():
        if path.startswith("src" + os.sep) and path.endswith(".c"):
            for pattern in (DEFINITION, TABLE):
                for match in pattern.finditer(code):
                    defined[match[1]] = (path, line_of(code, match.start()))
    return defined


MACRO = re.compile(r"^(?:#define (?:.*\\\n)*.*|static inline [^;{]*\{\n(?:.*\n)*?\})$", re.M)


def check_symbols(texts, words, defined):
    # Who uses a macro or an inline function uses its functions.
    in_macros = {name for path, code in texts.items() if path.endswith(".h") for macro in MACRO.findall(code)
                 for name in re.findall(r"\b[a-z_]\w*\b", macro)}
    for path, code in texts.items():
        if path.endswith(".h") and not path.startswith("tests"):
            for match in DECLARED.finditer(code):
                for name in re.findall(r"\b(\w+)\((?!\()", match[0])[:1]:
                    if name in defined and layer_of(path) not in (None, layer_of(defined[name][0])):
                        yield path, line_of(code, match.start()), f"{name}() is defined in {defined[name][0]}"
                    elif name not in defined and not re.search(rf"\b{name}\([^;]*\)\s*\{{", code):
                        yield path, line_of(code, match.start()), f"{name}() is declared but not defined"
    for name, (path, number) in defined.items():
        if name != "main" and name not in in_macros and not any(name in words[other] for other in words
                                                                if other.endswith(".c") and other != path):
            yield path, number, f"{name} is used only in this file and could be static"


def find_circles(words, defined):
    """Finds circles of files in which each file uses a function of the next."""
    graph = {}
    for path in words:
        if path.startswith("src" + os.sep) and path.endswith(".c"):
            used = {defined[name][0] for name in words[path] & defined.keys() if "_" in name}
            graph[path] = sorted(other for other in used if other != path and layer_of(other) == layer_of(path))
    left = dict(graph)
    while left:
        free = [path for path, used in left.items() if not any(other in left for other in used)]
        if not free:
            break
        for path in free:
            del left[path]
    # Each remaining file is on a circle or leads to one.
    for path in sorted(left):
        seen, todo = set(), [(other, [path, other]) for other in left[path]]
        while todo:
            at, way = todo.pop(0)
            if at == path:
                if path == min(way):
                    yield way
                break
            if at not in seen:
                seen.add(at)
                todo += [(other, way + [other]) for other in left.get(at, [])]


def check_links(root):
    """A library is linked with what its files include, and with nothing else."""
    for levels in LEVELS:
        for layer in levels:
            path = os.path.join("src", layer, "meson.build")
            if not os.path.exists(os.path.join(root, path)):
                continue
            with open(os.path.join(root, path)) as f:
                linked = re.search(r"_lib = static_library\(.*?dependencies: \[([^\]]*)\]", f.read(), re.S)
            headers = set()
            for name in files_of(os.path.join(root, "src", layer)):
                with open(name) as f:
                    headers |= set(re.findall(r'^#\s*include\s+([<"][^>"]+)', f.read(), re.M))
            for dependency in linked[1].replace(" ", "").split(",") if linked else ():
                library = LIBRARIES.get(dependency)
                prefix = "<" + library if library else f'"{dependency[:-4].replace("_", "/")}/'
                if not any(header.startswith(prefix) for header in headers):
                    yield path, 1, f"{layer} is linked with {dependency} and includes nothing of it"


def check_modes(root):
    for folder, _, names in sorted(os.walk(os.path.join(root, "tests"))):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith(".py") and os.access(path, os.X_OK):
                yield os.path.relpath(path, root), 1, "a test is not executable; run: chmod a-x"


def check_threads(root, texts, codes):
    """A change of a file with a thread starts the tests that show a race there."""
    path = os.path.join(root, "scripts", "test.sh")
    if not os.path.exists(path):
        return
    with open(path) as f:
        of_threads = re.search(r"^mapfile -t threads.*?^if", f.read(), re.M | re.S)
    expression = re.compile("|".join(re.findall(r"'(\^[^']*)'", of_threads[0])))
    for path, text in texts.items():
        headers = (included(path, match[1], texts) for match in map(INCLUDE.match, text.split("\n")) if match)
        if path.startswith("src" + os.sep) and path not in OF_PROCESSES and not expression.search(path) and \
                any(THREAD.search(codes[at]) for at in [path, *headers] if at == path or (at and at not in HARMLESS)):
            yield path, 1, "has a thread or data of threads, but no expression in scripts/test.sh runs the thread sanitizer for it"


def check_tree(root, texts):
    codes = {path: code_of(text) for path, text in texts.items()}
    # A struct may have the name of a function.
    words = {path: set(re.findall(r"\b[a-z_]\w*\b", re.sub(r"\b(struct|enum|union)\s+\w+", "", code)))
             for path, code in codes.items()}
    defined = symbols(codes)
    yield from check_symbols(codes, words, defined)
    for way in find_circles(words, defined):
        yield way[0], 1, f"a circle of calls: {' -> '.join(way)}"
    yield from check_links(root)
    yield from check_folders(texts)
    yield from check_readmes(root, texts)
    yield from check_documents(root, texts)
    yield from check_modes(root)
    yield from check_threads(root, texts, codes)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    graph, texts, wrong = {}, {}, 0
    for path in sources(root):
        with open(os.path.join(root, path)) as f:
            texts[path] = f.read()
    names = {}
    for path in texts:
        names.setdefault(os.path.basename(path), set()).add(layer_of(path))
    for path, text in texts.items():
        lines = text.split("\n")[:-1]
        for check in (check_includes(path, lines, texts, graph), check_lengths(path, lines), check_width(path, lines),
                      check_named_files(path, text, names), check_words(path, text)):
            for number, what in check:
                print(f"{path}:{number}: {what}")
                wrong += 1
    for path, number, what in check_tree(root, texts):
        print(f"{path}:{number}: {what}")
        wrong += 1
    cycle = find_cycle(graph)
    if cycle:
        print(f"{cycle[0]}:1: a cycle of includes: {' -> '.join(cycle)}")
        wrong += 1
    print(f"house rules: {len(texts)} files, {wrong} findings", file=sys.stderr)
    return 1 if wrong or not texts else 0


if __name__ == "__main__":
    sys.exit(main())
