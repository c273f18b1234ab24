"""The program: ``brokerha``, and ``python -m brokerha``.

Loading takes a while. Until then Ctrl-C ends it like any other program, without a traceback.
"""

from __future__ import annotations

import signal
import sys

# An ignored SIGINT, as under nohup, stays ignored.
_is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _is_interruptible:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from brokerha.cli.main import main  # noqa: E402

if _is_interruptible:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if __name__ == "__main__":
    sys.exit(main())
