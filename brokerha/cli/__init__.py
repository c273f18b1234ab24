"""The command line: what operators, scripts and supervisors call.

    main.py        the program, and the one place where errors become a line and an exit code
    exits.py       exit codes and error lines
    options.py     options that mean the same everywhere
    access.py      which cluster, and the client that talks to it
    inputs.py      an argument, a file, or standard input
    output.py      table, JSON, YAML, tab-separated values
    progress.py    rate and time left, on a terminal only

    node.py        one node in the foreground              status.py      one row for each node
    up.py          all nodes of a file on this machine     data.py        update, query, get, put, delete
      children.py    processes and their lines             load.py        RDF files of any size
      readiness.py   asks until all serve                  log.py         the synchronised queue: show, tail, verify
    simulate.py    the simulator                           agreement.py   wait, verify
    control.py     the control suite: add, list, remove
    page.py        docs/reference/commands.md              demo.py, bench.py, and what they run

Commands are thin: they parse, call, and write. What is heavy is imported inside of the functions that need it.
"""
