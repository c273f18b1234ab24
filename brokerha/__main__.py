"""``python -m brokerha`` is the same as ``brokerha``."""

from __future__ import annotations

import sys

from brokerha.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
