"""Bounds of the log, each with its reason; a turn of the loop must stay short whatever the log holds."""

from __future__ import annotations

SEGMENT_BYTES = 16 * 1024**2
"""A segment is closed once it is longer: about what a start reads, and the step in which disk space is given back."""
CACHE_BYTES = 16 * 1024**2
"""Records just appended, kept as they are: the core asks for them again within a few turns."""
UNPACKED_BYTES = 8 * 1024**2
"""Records read back from the disk, so that reading an old range unpacks each record once."""
INDEXES_HELD = 24
"""Indexes of closed segments that are kept in memory, about half a megabyte each."""
IDS_HELD = 16_384
"""Transaction ids in memory until they are written, sorted; measured: 15 ms."""
RUNS_MERGED = 4
"""So many runs of ids of about one size become one."""
RUN_LIMIT = 1_000_000
"""Rows of the largest run that is made of others: 70 MB, which are in memory while it is made."""
MERGED_AT_ONCE = 4_000
"""Ids that one step of `keep` merges; measured: 6 ms."""
TRIM_LSNS = 5_000
"""Most LSNs that one call of `trim` drops."""
TRIM_RECORDS = 200
"""Most `Added` records that one call of `trim` drops."""
FORGET_AT_ONCE = 10_000
"""`keep` forgets ids once at least so many, and an eighth of all, are old enough."""
MARK_LSNS = 1_000
"""Trimmed LSNs between two of which the timestamp stays known: ids are forgotten by time, in steps of this size."""
ROOM_BYTES = 64 * 1024**2
"""What a load leaves free on the disk; with so much to give back, `keep` closes a segment early."""
