"""``brokerha pipeline``: the jobs that run on Spark.

    command.py   which options all of them share, how a job is found, and how it tells how far it is
    archive.py   ``brokerha pipeline archive`` and ``archive-info``
    audit.py     ``brokerha pipeline audit``: is the archive what was archived
    export.py    ``brokerha pipeline export``: any state of the log, from an archive
    load.py      ``brokerha pipeline load``: files of any size as many small transactions
    rebuild.py   ``brokerha pipeline rebuild``: any state of the log, from an archive
    report.py    ``brokerha pipeline report``: one HTML page about an archive, with charts
"""
