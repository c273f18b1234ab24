"""Whether a source goes on where an archive ends: the same cluster's log, the same history of it, without a gap."""

from __future__ import annotations

from brokerha.model.errors import InvalidRequest, StoreError, WentBack
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn
from brokerha.model.log_lineages import newest, problem
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.archive_manifest import ArchiveState
from brokerha.pipeline.entries import EntrySource
from brokerha.stores.log_pages import LinesMissing


def checked_begin(source: EntrySource, state: ArchiveState, from_lsn: Lsn, archive: Archive) -> Lsn:
    """The LSN at which the archive begins. Raises LinesMissing at a gap, InvalidRequest, StoreError for another history,
    WentBack for one that was given up in a split.
    """
    first_lsn, last_lsn = source.first_lsn(), source.last_lsn()
    if not state.files:
        begin = from_lsn or state.first_lsn
        if begin < first_lsn:
            raise LinesMissing(
                f"the source begins at LSN {first_lsn}, and lacks what is before it: archive that from a journal, a stream or a backup first, "
                f"or begin here with --from-lsn {first_lsn}; then audit and rebuild lack the state before it"
            )
        if begin > last_lsn + 1:
            raise InvalidRequest(
                f"the source ends at LSN {last_lsn}, and the archive would begin at {begin}: choose an earlier one"
            )
        return begin
    rewinds = source.rewinds()
    if void := problem(rewinds, state.lineage, state.last_lsn):
        raise WentBack(f"{void}, with an archive in another folder (or a copy of this one that ends there or before)")
    if newest(rewinds) < state.lineage and last_lsn > state.last_lsn:
        raise StoreError(
            f"the source is of lineage {newest(rewinds)} of the log, the archive of {state.lineage}: what the source has may be void since a "
            "split; archive from a master that runs, or into another folder"
        )
    following = state.last_lsn + 1
    if following < first_lsn:
        raise LinesMissing(
            f"the archive ends at LSN {state.last_lsn} and the source begins at {first_lsn}: "
            f"archive what is between them from a journal, a stream or a backup"
        )
    common = min(state.last_lsn, last_lsn)
    if first_lsn <= common and common >= state.first_lsn:
        entry = next(source.read(common, common))
        of_archive = state.files[-1].last_fingerprint
        if common < state.last_lsn:
            of_archive = text_of(archive.fingerprint_at(common))
        if text_of(entry.fingerprint) != of_archive:
            raise StoreError(
                f"the source has another history than the archive: at LSN {common} the content differs; is it the same cluster?"
            )
    return from_lsn or state.first_lsn
