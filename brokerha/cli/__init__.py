"""The command line: what operators, scripts and supervisors call.

    common/      what commands share: which cluster, options, input and output, exit codes
    data/        commands that read and write what a cluster holds
    cluster/     commands that look at a cluster, and that change who takes part in it
    machine/     commands about one machine: nodes in the foreground, deployment files, diagnosis, the simulator
    backup/      backups, restoring, and replaying lines of the log
    pipeline/    ``brokerha pipeline``: the jobs that run on Spark
    demo/        ``brokerha demo``: a whole cluster that loses nodes on the way
    bench/       ``brokerha bench``: what a cluster does, beside what the broker does alone
    reference/   what is made from the commands themselves: reference pages, JSON schemas

    main.py      the program, and the one place where errors become a line and an exit code

Commands are thin: they parse, call, and write. What is heavy is imported inside of the functions that need it.
"""
