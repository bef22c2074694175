#!/usr/bin/env bash
# Packs what meson install brings, for the role evb: pack.sh [FILE [BUILD]] (default: evb.tar.gz beside this script).
# Without BUILD, the directory of a build, it builds in build, for /usr/local.
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '2,3s/^# //p' "$0"; exit 0 ;;
  -*) echo "pack.sh: unknown option $1" >&2; exit 2 ;;
esac
file=$(realpath -m "${1:-$(dirname "$0")/evb.tar.gz}")
build=$(realpath -m "${2:-$(dirname "$0")/../../build}")
(($# > 1)) || "$(dirname "$0")/../../scripts/build.sh" "$build"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
meson install -C "$build" --no-rebuild --quiet --destdir "$stage"
# Without directories: on the machine, they may be links, or have other owners and modes.
find "$stage" ! -type d -printf '%P\0' | sort -z |
  tar --create --gzip --file "$file" --directory "$stage" --owner=root:0 --group=root:0 --no-recursion --null --files-from=-
