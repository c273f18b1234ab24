"""Commands about one machine: nodes in the foreground, deployment files, diagnosis, the simulator.

    node.py             ``brokerha node``: one node in the foreground, by the program that its role names
    up.py               ``brokerha up``: a whole cluster on this machine, one process for each node, until Ctrl-C
    supervising.py      the processes of ``brokerha up``: one for each node, asked whether it serves, looked after until there is a reason to end
    init.py             ``brokerha init``: deployment files made from the cluster file, for supervisord, systemd
    doctor.py           ``brokerha doctor``: what is wrong with this machine, its broker and its nodes
    support_bundle.py   ``brokerha support-bundle``: one file for a helper
    simulate.py         ``brokerha simulate``: the shipped code in a world of faults, one seed or many
"""
