"""The connection of Ansible to a machine of machines.py."""
import subprocess

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: machine
short_description: Runs commands in a container of a test; see test_testbed.py
description: Enters the namespaces of a process.
author: evb
options:
  pid:
    description: PID of the first process of the container
    vars:
      - name: machine_pid
"""

# As ssh, it does not pass the environment of the test on.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME": "/root", "LANG": "C.UTF-8"}


class Connection(ConnectionBase):
    transport = "machine"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def _enter(self, *command, **options):
        entered = ["nsenter", f"--target={self.get_option('pid')}", "--all", *command]
        return subprocess.run(entered, stderr=subprocess.PIPE, env=ENVIRONMENT, **options)

    def exec_command(self, cmd, in_data=None, sudoable=True):
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        done = self._enter("sh", "-c", cmd, input=in_data or b"", stdout=subprocess.PIPE)
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path, out_path):
        with open(in_path, "rb") as file:
            self._enter("sh", "-c", 'cat >"$1"', "sh", out_path, stdin=file, check=True)

    def fetch_file(self, in_path, out_path):
        with open(out_path, "wb") as file:
            self._enter("cat", in_path, stdin=subprocess.DEVNULL, stdout=file, check=True)

    def close(self):
        self._connected = False
