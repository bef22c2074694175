#!/usr/bin/env python3
"""Tests check-house.py: it reports the single mistake in each small tree, and accepts a tree without one."""
import pathlib
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check-house.py"
GOOD = {
    "src/base/a.h": "int a(int x);\n",
    "src/base/a.c": '#include "base/a.h"\n\nint a(int x)\n{\n        return x;\n}\n',
    "src/net/n.h": '#include "base/a.h"\nint n(void);\n',
    "src/net/n.c": '#include "net/n.h"\n\nint n(void)\n{\n        return a(1);\n}\n',
    "src/main.c": '#include "net/n.h"\n\n/* See n.c, net/n.c and net/sched/sch_tbf.c. */\nint main(void)\n{\n        return n();\n}\n',
    "src/net/meson.build": "net_lib = static_library('net', s, dependencies: [base_dep])\n",
    **{f"src/{layer}/{layer}{i}.h": "" for layer in ("base", "net") for i in range(3)},
    "scripts/test.sh": "mapfile -t threads < <(changed a:'^src/base/x' \\\n  b:'^src/net/net0')\nif\nmore='^src/base/b'\n",
    "src/net/net0.h": "extern pthread_mutex_t lock;\n",
    **{f"src/{layer}/README.md": f"# {layer}\nEnter at `{layer}0.h`.\n" for layer in ("base", "net")},
}
BAD = {
    "upward": ({"src/base/a.c": '#include "net/n.h"\n'}, "base includes net/n.h"),
    "neighbour": ({"src/store/s.h": '#include "net/n.h"\n'}, "store includes net/n.h"),
    "cycle": ({"src/base/a.h": '#include "base/b.h"\n', "src/base/b.h": '#include "base/a.h"\n'}, "a cycle"),
    "stranger": ({"src/magic/m.h": '#include "base/a.h"\n'}, "is not one of the house's"),
    "small folder": ({"src/net/wire/w.h": ""}, "src/net/wire:1: 1 files, at least 5"),
    "a name twice": ({"src/net/base1.h": ""}, "src/net/base1.h:1: another file has this name: src/base/base1.h"),
    "long function": ({"src/base/a.c": "int a(int x)\n{\n" + "        x++;\n" * 70 + "}\n"}, "function of 72 lines"),
    "long line": ({"src/base/b.c": "int " + "x" * 110 + ";\n"}, "src/base/b.c:1: 115 columns"),
    "declared only": ({"src/base/a.h": "int a(int x);\nint gone(int x);\n"}, "a.h:2: gone() is declared"),
    "public without need": ({"src/base/a.c": GOOD["src/base/a.c"] + "\nint lonely(void)\n{\n        return 1;\n}\n"},
                            "a.c:8: lonely is used only in this file"),
    "a file that is gone": ({"src/main.c": GOOD["src/main.c"].replace("n.c", "m.c")}, "main.c:3: m.c does not exist"),
    "a file of another layer": ({"src/main.c": GOOD["src/main.c"].replace("n.c", "base/n.c")}, "main.c:3: base/n.c does not exist"),
    "a document of a file that is gone": ({"docs/a.md": "See `a.c`, `base/a.c`,\n`src/base/a.c` and `m/a.c`.\n"}, "docs/a.md:2: m/a.c does not exist"),
    "a folder without a README": ({"src/net/wire/w.c": ""}, "src/net/wire:1: no README.md"),
    "a long README": ({"src/net/README.md": "A line.\n" * 13}, "src/net/README.md:1: 13 lines, at most 12"),
    "a README of a file that is gone": ({"src/net/README.md": "# net\nEnter at `net0.h` and `m.h`.\n"}, "src/net/README.md:2: m.h does not exist"),
    "a README without sources": ({"src/shape/README.md": "See `m.c`.\n"}, "src/shape/README.md:1: m.c does not exist"),
    "needless link": ({"src/net/meson.build": "net_lib = static_library('net', s, dependencies: [base_dep, zlib])\n"},
                      "net is linked with zlib"),
    "circle of calls": ({"src/base/b.c": "int b_call(void)\n{\n        return a_call();\n}\n",
                         "src/base/c.c": "int a_call(void)\n{\n        return b_call();\n}\n"},
                        "a circle of calls: src/base/b.c -> src/base/c.c -> src/base/b.c"),
    "own header late": ({"src/base/a.c": "#include <stdio.h>\n" + GOOD["src/base/a.c"]}, "a.c:1: src/base/a.h comes first"),
    "strained name": ({"src/base/b.c": "int b_take_note(void)\n{\n        return 0;\n}\n"}, 'b.c:1: the name b_take_note has the word "note"'),
    "an executable test": ({"tests/test_a.py": "#!/usr/bin/env python3\n"}, "tests/test_a.py:1: a test is not executable"),
    "a thread that test.sh does not know": ({"src/base/base1.h": "extern _Atomic int a;\n"}, "src/base/base1.h:1: has a thread or data"),
    "data of threads": ({"src/net/net1.h": '#include "net0.h"\n'}, "src/net/net1.h:1: has a thread or data"),
    "homeless function": ({"src/net/m.h": "int a(int x);\n"}, "m.h:1: a() is defined in src/base/a.c"),
}


def check(files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = pathlib.Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if text.startswith("#!") else 0o644)
        done = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True)
        return done.returncode, done.stdout


status, out = check(GOOD)
assert status == 0 and out == "", out
for name, (files, what) in BAD.items():
    status, out = check({**GOOD, **files})
    assert status == 1 and what in out, (name, out)
assert check({})[0] == 1, "a tree without files must fail"
print(f"ok: {len(BAD)} mistakes found")
