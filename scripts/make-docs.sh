#!/usr/bin/env bash
# Makes the manual pages from the templates in docs/man/ and the tables of the program; a build calls it.
#   make-docs.sh EVB FOLDER
#
# A template is mdoc. A line "@name arguments" in it is replaced by text from the program's help:
#   @head COMMAND     NAME and SYNOPSIS of a subcommand
#   @commands, @see (references to all of them), @verbs COMMAND, @options COMMAND [VERB], @keys, @metrics, @states
#   @source FILE      a file of the tree as it is
# The date of all pages is that of the newest heading of CHANGELOG.md.
set -euo pipefail
(($# == 2)) || { sed -n '2,3s/^# *//p' "$0" >&2; exit 2; }
evb=$(realpath "$1") folder=$(realpath "$2")
cd "$(dirname "$0")/.."
date=$(LC_ALL=C date -d "$(sed -En 's/^##.* ([0-9]{4}(-[0-9]{2}){2})$/\1/p' CHANGELOG.md | sort | tail -n 1)" '+%B %-d, %Y')

# The help of a command or verb, each entry in one line.
help_of() { # [COMMAND [VERB]]
  "$evb" "$@" --help | awk '/^         / {sub(/^ +/, " "); line = line $0; next} NR > 1 {print line} {line = $0} END {print line}'
}
commands() {
  help_of | awk '/^Options:/ {exit} /^  [a-z]/'
}
# A date in another form is that of the day on which the page is read, and the header without a name is BSD's.
title_of() { # NAME SECTION
  printf '.Dd %s\n.ds doc-volume-operating-system evb\n.Dt %s %s\n.Os evb %s' "$date" "$1" "$2" "$("$evb" --version | awk '{print $2}')"
}
head_of() { # COMMAND
  local help verb
  help=$(commands | awk -v c="$1" '$1 == c {$1 = ""; print substr($0, 2)}')
  printf '%s\n.Sh NAME\n.Nm evb-%s\n.Nd %s\n.Sh SYNOPSIS\n' "$(title_of "EVB-${1^^}" 1)" "$1" "$help"
  if "$evb" "$1" --help | grep -q '^Verbs:'; then
    for verb in $(verbs "$1" | awk '{print $1}'); do
      synopsis "$("$evb" "$1" "$verb" --help | head -n 1)"
    done
  else
    synopsis "$("$evb" "$1" --help | head -n 1)"
  fi
}
synopsis() { # "Usage: evb run FILE [OPTION]..."
  awk '{
    name = ""; arguments = ""
    for (i = 2; i <= NF; i++) {
      if ($i == "[OPTION]...") continue
      if ($i ~ /^[a-z]/) name = name " " $i
      else if ($i ~ /^\[.*\]$/) arguments = arguments "\n.Op Ar " substr($i, 2, length($i) - 2)
      else arguments = arguments "\n.Ar " $i
    }
    print ".Nm" name arguments "\n.Op Ar OPTION ..."
  }' <<<"$1"
}
verbs() { # COMMAND
  help_of "$1" | awk '/^Verbs:/ {on = 1; next} /^$/ {on = 0} on'
}
list() { # MACRO; lines "  name  text" from standard input
  echo ".Bl -tag -width Ds"
  awk -v macro="$1" '{name = $1; $1 = ""; print ".It " macro " " name; print substr($0, 2)}' | text_of_items
  echo ".El"
}
# Text lines must not start with a control character.
text_of_items() {
  sed -E 's/\\/\\e/g; /^\.(It |Bl -|El$)/!s/^([.'"'"'])/\\\&\1/'
}
options() { # COMMAND [VERB]
  echo ".Bl -tag -width Ds"
  # The parts of an option, which its argument names, are a list in its text.
  help_of "$@" | awk '/^    [a-z]/ {
    if (!in_parts++) print ".Bl -tag -width Ds"
    name = $1
    argument = sub(/=.*/, "", name) ? " Ns = Ns Ar " substr($1, length(name) + 2) : ""
    $1 = ""
    print ".It Cm " name argument
    print substr($0, 2)
  }
  /^  --/ {
    if (in_parts) print ".El"
    in_parts = 0
    line = substr($0, 5)
    split(line, words, " ")
    name = words[1]
    argument = substr(line, length(name) + 1, 2) ~ /^ [^ ]/ ? words[2] : ""
    help = line
    sub(/^[^ ]+ +/, "", help)
    if (argument != "") sub(/^[^ ]+ +/, "", help)
    item = ".It Fl -" name
    if (argument ~ /^\[.*\]$/) item = item " Op Ar " substr(argument, 2, length(argument) - 2)
    else if (argument != "") item = item " Ar " argument
    print item
    print help
  }
  END {if (in_parts) print ".El"}' | text_of_items
  echo ".El"
}
page() { # TEMPLATE
  local line words
  printf '.\\" Made by scripts/make-docs.sh from docs/man/%s and the tables of the program.\n' "$(basename "$1")"
  while IFS= read -r line; do
    read -ra words <<<"$line"
    case ${words[0]:-} in
      @head) head_of "${words[1]}" ;;
      @commands) commands | awk '{name = $1; $1 = ""; print ".It Xr evb-" name " 1"; print substr($0, 2)}' | text_of_items ;;
      @verbs) verbs "${words[1]}" | list Cm ;;
      @options) options "${words[@]:1}" ;;
      @title) title_of "${words[@]:1}"; echo ;;
      @see) commands | awk '{print ".Xr evb-" $1 " 1 ,"}' | sort ;;
      @keys) "$evb" check --keys --man ;;
      @metrics) "$evb" check --metrics --man ;;
      @states) "$evb" ctl states --man ;;
      @source) echo ".Bd -literal"; text_of_items <"${words[1]}"; echo ".Ed" ;;
      @*) echo "$1: unknown directive: $line" >&2; return 1 ;;
      *) printf '%s\n' "$line" ;;
    esac
  done <"$1"
}

for template in docs/man/*.in; do
  page "$template" >"$folder/$(basename "$template" .in)"
done
status=0
for command in $(commands | awk '{print $1}'); do
  [[ -f docs/man/evb-$command.1.in ]] || { echo "evb $command has no manual page; add docs/man/evb-$command.1.in" >&2; status=1; }
done
exit "$status"
