"""``brokerha pipeline``: the jobs that run on Spark.

    command.py   shared options of all jobs, finding a job, and its progress
    archive.py   ``brokerha pipeline archive`` and ``archive-info``
    audit.py     ``brokerha pipeline audit``: is the archive unchanged, and do workers match it?
    load.py      ``brokerha pipeline load``: files of any size as many small transactions
    report.py    ``brokerha pipeline report``: one HTML page about an archive, with charts
    rebuild.py   ``brokerha pipeline rebuild`` and ``export``: any state of the log, from an archive
"""
