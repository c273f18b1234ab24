"""The command line, for operators, scripts and supervisors.

    common/      shared parts of commands: the choice of the cluster, options, input and output, exit codes
    data/        commands that read and write the content of a cluster
    cluster/     commands that inspect a cluster, or change its members
    machine/     commands about one machine: nodes in the foreground, deployment files, diagnosis, the demonstration
    backup/      backups, restoring, and replaying lines of the log
    pipeline/    ``brokerha pipeline``: the jobs that run on Spark

    main.py      the program, and the only place where errors become a line and an exit code

Commands are thin: they parse, call, and write. Slow imports are inside the functions that need them.
"""
