#!/usr/bin/python3
"""Leads the session of a terminal, as a shell does: session_leader.py STATUS HOLD PROGRAM [ARGUMENT...]

Standard input is the terminal. Writes the program's process ID and then its status, each as a line, to the descriptor STATUS,
and stays until HOLD is at its end: the kernel hangs up a terminal when its session's leader ends, and drops what is still on
its way to the screen.
"""
import fcntl
import os
import signal
import subprocess
import sys
import termios


def main(status, hold, *words):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Keys that signal reach all of the foreground, the leader too. As these signals have handlers here, and are not ignored, the
    # program begins with the defaults.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    program = subprocess.Popen(words, close_fds=True)
    # The kernel tells only the leader that the window is closed.
    signal.signal(signal.SIGHUP, lambda *_: program.send_signal(signal.SIGHUP))
    os.write(int(status), f"{program.pid}\n".encode())
    os.write(int(status), f"{program.wait()}\n".encode())
    os.read(int(hold), 1)


main(*sys.argv[1:])
