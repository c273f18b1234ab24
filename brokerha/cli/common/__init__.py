"""Shared parts of commands: the choice of the cluster, options, input and output, exit codes.

    command.py    how a command declares its options, its cluster and its answer; options with the same meaning everywhere
    inputs.py     an argument, a file, or standard input
    output.py     table, JSON, YAML, tab-separated values
    terminal.py   interaction with a person: progress bars, notes while waiting, questions before a removal
    exits.py      exit codes and error lines
    logs.py       destination of a command's log lines
"""
