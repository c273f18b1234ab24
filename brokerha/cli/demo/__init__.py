"""``brokerha demo``: a whole cluster that loses nodes on the way.

    command.py   ``brokerha demo``: a whole cluster in this process that loses nodes on the way
    run.py       what ``brokerha demo`` does: three masters with two workers each, real data through all of them, losses on the way
    archive.py   the end of ``brokerha demo`` where the extra ``spark`` is installed
"""
