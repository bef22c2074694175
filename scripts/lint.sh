#!/usr/bin/env bash
# House rules, clang-format, clang-tidy, cppcheck and gcc's analyzer: lint.sh [BUILD-DIRECTORY [SOURCE...]]
# Analyzes these source files, or all of them, except those that were without a finding when they, their headers and the tools were
# the same. Any finding is an error. In named files, clang's analyzer explores fewer states, which takes a fraction of the time.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build}
[[ -f $folder/compile_commands.json ]] || { echo "lint.sh: build first (scripts/build.sh)" >&2; exit 2; }
sources=("${@:2}")
states=5000 # of a function
((${#sources[@]})) || { mapfile -t sources < <(git ls-files 'src/*.c'); states=225000; }
# The BPF programs are not for this processor; the kernel checks them.
mapfile -t sources < <(printf '%s\n' "${sources[@]}" | grep -v '_program\.c$')
failed=0

stamps=$folder/lint
mkdir -p "$stamps"
tools=$states$(cat scripts/lint.sh .clang-tidy <(clang-tidy --version) <(cppcheck --version) <(gcc --version) | sha256sum)
declare -A parts=()
while read -r source headers; do parts[$source]="$source $headers"; done < <(ninja -C "$folder" -t deps | awk -v folder="$folder" '
  /^ / { if (!sub("^\\.\\./", "", $1) && $1 !~ "^/") $1 = folder "/" $1; files = files " " $1; next }
  { if (files != "") print substr(files, 2); files = "" }
  END { if (files != "") print substr(files, 2) }')
unknown=() fresh=()
for source in "${sources[@]}"; do
  # shellcheck disable=SC2086
  stamp=$stamps/$({ echo "$tools"; sha256sum ${parts[$source]:-$source}; } | sha256sum | cut -c1-64)
  [[ ${parts[$source]:-} && -e $stamp ]] || { unknown+=("$source"); fresh+=("$stamp"); }
done
echo "${#unknown[@]} of ${#sources[@]} files to analyze" >&2
sources=("${unknown[@]}")

echo "house rules" >&2
scripts/check-house.py || failed=1

echo "clang-format" >&2
git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror || failed=1

((${#sources[@]})) || exit "$failed"

echo "clang-tidy" >&2
printf '%s\n' "${sources[@]}" | xargs -P2 -n4 clang-tidy -p "$folder" --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option \
  --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=$states 2>/dev/null || failed=1

echo "cppcheck" >&2
# Suppressed: cppcheck does not follow the cleanup attribute and take_ptr() (memleak), or our macros and inline
# functions. clang-tidy reports style.
cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 -j2 \
  --suppress=missingIncludeSystem --suppress=unknownMacro --suppress=memleak --suppress=nullPointerRedundantCheck \
  -D_GNU_SOURCE '-DEVB_VERSION="0"' -Iinclude -Isrc "${sources[@]}" || failed=1

echo "gcc -fanalyzer" >&2
# A compiler cache remembers files without a finding; what is found is an error, which it does not keep.
flags=$(pkg-config --cflags libnl-route-3.0 libmnl jansson) cache=$(command -v ccache || true)
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
# -Wno-analyzer-malloc-leak: gcc 12 does not follow memory handed over through cleanup attributes and structs.
printf '%s\n' "${sources[@]}" | FLAGS=$flags CACHE=$cache xargs -P2 -I{} sh -c '
  $CACHE gcc $FLAGS -std=gnu17 -D_GNU_SOURCE "-DEVB_VERSION=\"0\"" -O1 -Iinclude -iquote src -fanalyzer -Werror \
    -Wno-analyzer-malloc-leak -Wno-analyzer-fd-leak -Wno-analyzer-use-of-uninitialized-value \
    -c {} -o "$0/$(echo {} | tr / _).o"' "$objects" || failed=1
((failed)) || touch "${fresh[@]}"
exit "$failed"
