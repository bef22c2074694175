#!/bin/sh
# Prints what may complete the last word of a command line, one candidate a line; nothing: a file name, or anything.
#   complete.sh PROGRAM WORD... LAST
# All comes from the tables of the program: its help, `evb check --keys`, and the nodes of the scenario.
# PROGRAM may be evb-qos, whose verbs stand where evb has commands. It cannot check scenarios, but evb may be installed too.
program=$1
case $program in *evb-qos) checker=evb ;; *) checker=$program ;; esac
shift
n=$#
first=${1-}
second=${2-}
last= before= scenario=
for word; do
  before=$last last=$word
  case $word in *.conf) scenario=$word ;; esac
done

# The help of a command or verb, each entry in one line.
help_of() {
  "$program" "$@" --help | awk '/^         / {sub(/^ +/, " "); line = line $0; next} NR > 1 {print line} {line = $0} END {print line}'
}
commands() { help_of | awk '/^Options:/ {exit} /^  [a-z]/ {print $1}'; }
verbs() { help_of "$1" | awk '/^Verbs:/ {on = 1; next} /^$/ {on = 0} on {print $1}'; }
options() { help_of "$@" | awk '/^  --/ {print $1}'; }
# What the help names as the argument of an option.
argument_of() { # OPTION COMMAND [VERB]
  name=$1
  shift
  help_of "$@" | awk -v name="$name" '/^  --/ && $1 == name && $0 ~ "^  " name " [^ ]" {print $2}'
}
# The parts of an option that its argument names: NAME=, or NAME for a part without a value.
parts() { # OPTION COMMAND [VERB]
  name=$1
  shift
  help_of "$@" | awk -v name="$name" '/^  --/ {on = $1 == name} on && /^    [a-z]/ {sub(/=.*/, "=", $1); print $1}'
}
# KEY=, or KEY=VALUE for each value that is a word. Without evb, the keys that the help names.
settings() { # LAST COMMAND [VERB]
  typed=$1
  shift
  if ! keys=$("$checker" check --keys); then
    help_of "$@" | tr -c 'a-z.-' '\n' | sed -n 's/^[a-z]*\.[a-z-]*$/&=/p'
    return
  fi
  printf '%s\n' "$keys" | awk -v last="$typed" '
    /^\[/ {section = substr($1, 2, length($1) - 2)}
    section && /^[a-z]/ {key = section "." $1}
    key && last !~ /=/ && /^[a-z]/ {print key "="}
    /^    Values: / && index(last, key "=") == 1 {
      sub(/^    Values: /, ""); sub(/ \(default: .*/, ""); gsub(/ or more/, ""); gsub(/,? or /, ", ")
      count = split($0, values, ", ")
      for (i = 1; i <= count; i++) if (values[i] ~ /^[a-z0-9+.-]+$/) print key "=" values[i]
    }'
}
# Nodes of the scenario, for a role only those that have it.
nodes() { # COMMAND
  "$checker" check ${scenario:+"$scenario"} --json | awk -v role="$1" -F '"' '
    $2 == "nodes" {on = 1}
    on && $2 == "name" {name = $4}
    on && $2 == "role" && (role !~ /^(ros|dfm|sfi)$/ || $4 == role) {print name}'
}

candidates() {
  if [ "$n" -eq 1 ]; then
    commands
    [ "$checker" != "$program" ] || echo help
    printf '%s\n' --help --version
    return
  fi
  if [ "$first" = help ]; then
    if [ "$n" -eq 2 ]; then commands; else verbs "$second"; fi
    return
  fi
  case $(verbs "$first") in
    '') set -- "$first" ;;
    *) if [ "$n" -eq 2 ]; then verbs "$first"; return; fi; set -- "$first" "$second" ;;
  esac
  case $before,$last in
    --set,*) settings "$last" "$@"; return ;;
    *,--set=*) settings "${last#--set=}" "$@" | sed 's/^/--set=/'; return ;;
    --dev,*) ls /sys/class/net; return ;;
    *,--dev=*) ls /sys/class/net | sed 's/^/--dev=/'; return ;;
    --node,*) nodes "$1"; return ;;
    *,--*=*) parts "${last%%=*}" "$@" | sed "s/^/${last%%=*}=/"; return ;;
    *,-*) options "$@"; return ;;
    --*) case $(argument_of "$before" "$@") in
        *\|*) argument_of "$before" "$@" | tr '|' '\n'; return ;;
        ?*) parts "$before" "$@"; return ;;
      esac ;;
  esac
  [ "$*" != "ctl set" ] || settings "$last" "$@"
}

candidates 2>/dev/null </dev/null | awk -v last="$last" 'index($0, last) == 1'
