"""Commands about one machine: nodes in the foreground, deployment files, diagnosis, the demonstration.

    node.py             ``brokerha node``: one node in the foreground, by the program of its role; and orders to a running node
    up.py               ``brokerha up``: all nodes of a cluster file on this machine; ``brokerha demo``: a cluster in this process that loses nodes
    supervising.py      the processes of ``brokerha up``: one for each node, with readiness checks and restarts
    init.py             ``brokerha init``: deployment files made from the cluster file, for supervisord, systemd
    doctor.py           ``brokerha doctor``: diagnosis of this machine, its broker and its nodes; ``brokerha support-bundle``: one file for support
    demonstration.py    the demonstration: three masters with two workers each, real data through all of them, losses; its archive, if Spark is there
"""
