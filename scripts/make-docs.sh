#!/usr/bin/env bash
# Makes the manual pages from the program's own tables: make-docs.sh EVB [FOLDER], or with --check compares and changes nothing.
set -euo pipefail
check=0
[[ ${1:-} == --check ]] && check=1 && shift
evb=$(realpath "${1:-build/evb}")
cd "$(dirname "$0")/.."
folder=${2:-docs}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

{
  cat <<'HEAD'
.\" Made by scripts/make-docs.sh from the table of keys.
.Dd November 2026
.Dt EVB.CONF 5
.Os
.Sh NAME
.Nm evb.conf
.Nd scenario of an event builder run
.Sh DESCRIPTION
A scenario is an INI file: sections, keys, and comments after # or ; at the start of a line.
Every key can be set on the command line by
.Fl -set Ar SECTION.KEY=VALUE ,
which wins over the file.
Nodes are made from ros.count and sfi.count, or named one by one in sections
.Ic [node NAME]
with the keys role (dfm, ros, sfi), address, device and cpus; counts then take the first so many of them.
.Sh KEYS
HEAD
  "$evb" check --keys --man
  printf '.Sh SEE ALSO\n.Xr evb 1\n'
} >"$made/evb.conf.5"

{
  cat <<'HEAD'
.\" Made by scripts/make-docs.sh from the program's help.
.Dd November 2026
.Dt EVB 1
.Os
.Sh NAME
.Nm evb
.Nd event builder for data acquisition
.Sh SYNOPSIS
.Nm
.Ar COMMAND
.Op Ar OPTION ...
.Sh COMMANDS
HEAD
  for command in $("$evb" --help | awk '/^  [a-z]/ {print $1}'); do
    printf '.Ss %s\n.Bd -literal\n' "$command"
    help=$("$evb" "$command" --help)
    # The verbs of a command have one set of options: it is shown once.
    if [[ $help == *VERB* ]]; then
      verb=$(awk '/^  [a-z]/ {print $1; exit}' <<<"$help")
      help+=$'\n\n'$("$evb" "$command" "$verb" --help | sed '2d')
    fi
    sed 's/\\/\\e/g; s/^\([.'"'"']\)/\\\&\1/' <<<"$help"
    printf '.Ed\n'
  done
  cat <<'TAIL'
.Sh EXIT STATUS
.Bl -tag -width 77
.It 0
Done.
.It 1
The run fell short: events are partial or lost, fragments are corrupt, no trigger was taken, the counts of DFM, SFIs and
files differ, events were built twice, an SFI fell silent with events, a ROS held triggers back until the end, the output
of an SFI failed, a report cannot be written, a node died, a check failed, or frames of a front-end may belong to other
triggers.
Each reason is one line on standard error, and an entry of
.Dq reasons
in the report.
.It 2
The command line or a file is wrong; it says where, and what is allowed.
.It 77
A privilege or a feature of the kernel is missing; it says which.
.It 75
A node could not start or go on for a reason that may pass, and says which; its unit starts it again.
Such reasons are memory, a DFM that was silent for
.Ic dfm.lost-after ,
and a DFM that has gone on to another run.
.El
.Pp
SIGTERM and SIGINT finish what is open and report; a second one stops at once.
.Pp
A node whose address is still missing, as at boot, retries every 500 ms.
A stopped node continues to serve until the DFM has ended the run or has been silent for
.Ic dfm.node-timeout ,
or until
.Ic run.stop-timeout
expires.
A stopped SFI leaves a run that goes on once it has built its events.
Nodes log SIGHUP and ignore it.
SIGHUP stops
.Nm evb run ,
unless
.Xr nohup 1
started it.
.Sh SEE ALSO
.Xr evb.conf 5
TAIL
} >"$made/evb.1"

for page in evb.1 evb.conf.5; do
  if ((check)); then
    diff -u "$folder/$page" "$made/$page" || { echo "$folder/$page is old: run scripts/make-docs.sh" >&2; exit 1; }
  else
    cp "$made/$page" "$folder/$page"
  fi
done
