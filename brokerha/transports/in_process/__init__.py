"""The broker of this process: the implementation of ``embedded://``.

local_broker.py   a message broker inside this process: exchanges, queues and bindings of one embedded cluster
direct_link.py    the link of an embedded cluster, without thread or socket: each call does its work at once
"""
