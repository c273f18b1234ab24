"""The broker of this process: what stands behind ``embedded://``.

local_broker.py   a message broker inside this process: exchanges, queues and bindings of one embedded cluster
direct_link.py    the link of an embedded cluster: no thread, no socket; what the loop calls is done in that call
"""
