"""The worker: applies the agreed log to a full copy of the data, and answers reads.

    main.py   the process
"""
