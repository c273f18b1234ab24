"""Ports for servers of tests: several processes that ask at once get others, and nobody gets one that is taken."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.support.free_ports import free_ports

ASK = "import sys; from tests.support.free_ports import free_ports; print([free_ports(7) for _ in range(50)], flush=True); sys.stdin.read()"


def test_processes_that_ask_at_once_get_different_ports():
    running = [
        subprocess.Popen([sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    try:
        firsts = [
            [int(each) for each in process.stdout.readline().strip(" []\n").split(",")] for process in running if process.stdout
        ]
    finally:
        for process in running:
            process.communicate()
    given = [{port + n for port in found for n in range(7)} for found in firsts]
    assert [len(ports) for ports in given] == [350] * 4
    assert len(set.union(*given)) == 4 * 350


def test_a_port_that_is_taken_is_passed_over_and_those_given_last_do_not_come_next():
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_ports()))
        server.listen()
        given = [free_ports() for _ in range(200)]
        assert server.getsockname()[1] not in given
    assert len(set(given)) == len(given)
