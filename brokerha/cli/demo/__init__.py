"""``brokerha demo``: a whole cluster that loses nodes during the demonstration.

    command.py   ``brokerha demo``: a whole cluster in this process that loses nodes, with equal copies at the end
    run.py       the demonstration: three masters with two workers each, real data through all of them, losses; its archive, if Spark is there
"""
