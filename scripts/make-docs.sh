#!/usr/bin/env bash
# Makes the manual pages from what the program says of itself: evb.conf(5) from the table of keys, evb(1) from the help
# of its subcommands. They are committed, and a test holds them against the program.
#   scripts/make-docs.sh [--check] [EVB]    check: change nothing, and fail where a page is not as it would be made
set -euo pipefail
export LC_ALL=C
check=0
if [[ ${1:-} == --check ]]; then check=1; shift; fi
evb=$(realpath "${1:-$(dirname "$0")/../build/evb}")
cd "$(dirname "$0")/.."
[[ -x $evb ]] || { echo "make-docs.sh: build first (scripts/build.sh)" >&2; exit 2; }
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

head_of() { # NAME SECTION
  printf '.\\" Made by scripts/make-docs.sh from the tables of the program; change those.\n'
  printf '.Dd November 21, 2026\n.Dt %s %s\n.Os\n' "${1^^}" "$2"
}

# `  --name ARGUMENT          what it does`, as the help prints it, to a list. Both columns have their place.
options_list() {
  awk 'function text(s) { gsub(/\\/, "\\e", s); return s ~ /^[.\x27]/ ? "\\&" s : s }
    BEGIN { print ".Bl -tag -width indent" }
    !/^  --/ || substr($0, 29, 1) != " " { print "make-docs.sh: not understood: " $0 > "/dev/stderr"; exit 1 }
    { left = substr($0, 5, 24); sub(/ +$/, "", left); n = index(left, " ")
      name = n ? substr(left, 1, n - 1) : left
      printf ".It Fl -%s%s\n%s\n", name, n ? " Ar \"" substr(left, n + 1) "\"" : "", text(substr($0, 30)) }
    END { print ".El" }'
}

options_of() { # COMMAND
  "$evb" "$1" --help | grep '^  --' | sort
}

page_1() {
  local commands command common line
  commands=$("$evb" --help | sed -n 's/^  \([a-z]*\)  *[^ ].*/\1/p')
  common=$(options_of run)
  for command in $commands; do
    common=$(comm -12 <(echo "$common") <(options_of "$command"))
  done
  head_of evb 1
  cat <<'EOF'
.Sh NAME
.Nm evb
.Nd event builder for data acquisition
.Sh SYNOPSIS
.Nm
.Ar COMMAND
.Op Ar OPTION ...
.Sh DESCRIPTION
Readouts (ROS) send the fragments of an event to one builder (SFI), which the data flow manager (DFM) has chosen.
What a run does is told by a scenario,
.Xr evb.conf 5 .
.Sh COMMANDS
EOF
  for command in $commands; do
    line=$("$evb" "$command" --help | head -n 1)
    printf '.Ss %s\n%s\n' "${line% \[OPTION\]...}" "$("$evb" "$command" --help | sed -n 2p)"
    line=$(comm -23 <(options_of "$command") <(echo "$common"))
    [[ -z $line ]] || options_list <<<"$line"
  done
  echo '.Sh COMMON OPTIONS'
  options_list <<<"$common"
  cat <<'EOF'
.Pp
A word behind
.Fl -json
is its file where all other words that the command needs stand before it, or where it is written
.Fl -json Ns = Ns Ar FILE ;
otherwise it is one of those words, and the object goes to standard output.
.Sh EXIT STATUS
.Bl -tag -width indent
.It 0
Done.
.It 1
It ran and fell short: events were lost, or a check failed.
.It 2
The command line or a file is wrong.
.It 77
A privilege or a feature of the kernel is missing; it is named.
.El
.Sh SEE ALSO
.Xr evb.conf 5
EOF
}

page_5() {
  head_of evb.conf 5
  cat <<'EOF'
.Sh NAME
.Nm evb.conf
.Nd scenario of an event builder
.Sh DESCRIPTION
Sections in brackets, below them lines of
.Ar KEY No = Ar VALUE ,
and comments after # or ; at the beginning of a line.
.Fl -set Ar SECTION.KEY=VALUE
on the command line wins over the file.
Quantities carry units: 1Gbit, 64KiB, 250us, 5kHz; sizes without one are bytes.
.Pp
.Dl evb check FILE
.Pp
shows a scenario as it is understood, or every mistake in it with its line.
.Sh NODES
.Cm ros.count
and
.Cm sfi.count
make the nodes dfm, ros1, ros2 ... and sfi1, sfi2 ...
Without them each machine has a section
.Bq node Ar NAME
with the keys
.Cm role
(dfm, ros or sfi),
.Cm address
(IPv4 or IPv6),
.Cm device
and
.Cm cpus
(processors that its threads are kept on, like 2-5,8).
One node is the DFM.
.Sh KEYS
EOF
  "$evb" check --keys --man
  echo '.Sh SEE ALSO'
  echo '.Xr evb 1'
}

page_1 >"$made/evb.1"
page_5 >"$made/evb.conf.5"
status=0
for page in evb.1 evb.conf.5; do
  if ((check)); then
    diff -u "docs/$page" "$made/$page" || { echo "docs/$page is not as the program tells it: run scripts/make-docs.sh" >&2; status=1; }
  else
    install -m 644 "$made/$page" "docs/$page"
  fi
done
exit "$status"
