#!/usr/bin/env bash
# Builds the program as on EL 9: with the oldest supported meson, from PyPI, and with gcc 11, whose warnings are errors.
#   build-oldest.sh [DIRECTORY] (default: build-oldest). Exits with 77 if meson or the compiler cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  -h | --help) sed -n '2,3s/^# *//p' "$0"; exit 0 ;;
  -*) echo "build-oldest.sh: unknown option $1; see build-oldest.sh --help" >&2; exit 2 ;;
esac
directory=${1:-build-oldest}
skip() { echo "build-oldest.sh: skipped: $1" >&2; exit 77; }

command -v gcc-11 >/dev/null || skip "gcc-11 is not installed (scripts/deps.sh oldest)"
oldest=$(sed -n "s/^  meson_version: '>=\(.*\)',$/\1/p" meson.build)
venv=$(realpath -m "$directory/meson")
if [[ $("$venv/bin/meson" --version 2>/dev/null) != "$oldest" ]]; then
  rm -rf "$venv"
  { python3 -m venv "$venv" && "$venv/bin/pip" install -q "meson==$oldest"; } >/dev/null 2>&1 ||
    { rm -rf "$venv"; skip "meson $oldest cannot be installed"; }
fi
export PATH="$venv/bin:$PATH" CC=gcc-11
scripts/build.sh "$directory" -Dwerror=true -Dtests=false
# What this version does not know may be a warning only.
if grep WARNING "$directory/meson-logs/meson-log.txt"; then exit 1; fi
"$directory/evb" --version
