#!/usr/bin/env python3
"""Write the files of the DFM's page as a C file.

    embed.py OUTPUT.c FILE...

In HTML files, @HASH@ stands for a hash of all other files: browsers keep those for good, as changed files have
other addresses.
"""
import hashlib
import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}


def main():
    output, *paths = map(pathlib.Path, sys.argv[1:])
    content = {path: path.read_bytes() for path in paths}
    others = hashlib.sha256(b"".join(content[path] for path in paths if path.suffix != ".html")).hexdigest()[:12]
    arrays, rows = [], []
    for i, path in enumerate(paths):
        is_page = path.suffix == ".html"
        data = content[path].replace(b"@HASH@", others.encode()) if is_page else content[path]
        lines = [", ".join(map(str, data[at:at + 32])) for at in range(0, len(data), 32)]
        arrays.append(f"static const unsigned char bytes_{i}[] = {{\n" + ",\n".join(lines) + "\n};\n")
        rows.append('        {"%s", "%s", "%s", bytes_%d, sizeof bytes_%d},\n' % (
            "/" if is_page else f"/{path.name}", TYPES[path.suffix], "no-cache" if is_page else "public, max-age=31536000, immutable", i, i))
    output.write_text('/* Made by embed.py. */\n#include "page/page.h"\n\n' + "".join(arrays) + "\nconst struct page_file page_files[] = {\n"
                      + "".join(rows) + "};\nconst size_t n_page_files = sizeof page_files / sizeof page_files[0];\n")


main()
