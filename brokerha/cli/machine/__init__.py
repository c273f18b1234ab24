"""Commands about one machine: nodes in the foreground, deployment files, diagnosis, the simulator, the demonstration.

    node.py             ``brokerha node``: one node in the foreground, by the program of its role; ``brokerha up``: all of a cluster file
    supervising.py      the processes of ``brokerha up``: one for each node, with readiness checks and restarts
    init.py             ``brokerha init``: deployment files made from the cluster file, for supervisord, systemd
    doctor.py           ``brokerha doctor``: diagnosis of this machine, its broker and its nodes; ``brokerha support-bundle``: one file for support
    simulate.py         ``brokerha simulate``: the shipped code in a world of faults, one seed or many; ``brokerha demo``: a cluster in this process that loses nodes
    demonstration.py    that demonstration: three masters with two workers each, real data through all of them, losses; its archive, if Spark is there
"""
