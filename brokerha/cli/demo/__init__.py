"""``brokerha demo``: a whole cluster that loses nodes during the demonstration.

    command.py   ``brokerha demo``: a whole cluster in this process that loses nodes, with equal copies at the end
    run.py       the demonstration: three masters with two workers each, real data through all of them, losses
    archive.py   the end of ``brokerha demo`` if the extra ``spark`` is installed
"""
