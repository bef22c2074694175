#!/bin/sh
# Gives the niceness of this process to its session, too, and runs a command: nice setsid nice-session.sh COMMAND [ARGUMENT...]
# Where the kernel gives each session its own share of the processors (sched_autogroup_enabled), niceness counts only within a session.
{ nice >/proc/self/autogroup; } 2>/dev/null
exec "$@"
