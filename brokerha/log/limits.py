"""Limits of the log, each with its reason; a turn of the event loop must stay short whatever the log holds."""

from __future__ import annotations

SEGMENT_BYTES = 16 * 1024**2
"""Length at which a segment is closed: about the amount that a start reads, and the unit in which disk space is freed."""
CACHE_BYTES = 16 * 1024**2
"""Size of the cache of appended records: the core reads them again within a few turns."""
UNPACKED_BYTES = 8 * 1024**2
"""Size of the cache of records read from disk, so that reading an old range unpacks each record once."""
INDEXES_HELD = 24
"""Number of indexes of closed segments in memory, about half a megabyte each."""
IDS_HELD = 16_384
"""Number of transaction ids in memory before they are written, sorted; measured: 15 ms."""
RUNS_MERGED = 4
"""Number of runs of about one size that are merged into one."""
RUN_LIMIT = 1_000_000
"""Limit of rows of a merged run: 70 MB, which are in memory during the merge."""
MERGED_AT_ONCE = 4_000
"""Number of ids that one step of `keep` merges; measured: 6 ms."""
TRIM_LSNS = 5_000
"""Limit of LSNs that one call of `trim` drops."""
TRIM_RECORDS = 200
"""Limit of `Added` records that one call of `trim` drops."""
MARK_LSNS = 1_000
"""Distance of trimmed LSNs with a known timestamp: ids are forgotten by time, in steps of this size."""
ROOM_BYTES = 64 * 1024**2
"""Space that a load leaves free on the disk; `keep` closes a segment early if that frees this much."""
