"""The two machines of a transaction: the coordinator's at the primary, the participant's at a backup (transactions, sections 2 to 6).

| coordinator | means |
|---|---|
| OPEN | collects operations; nothing of it is durable |
| PREPARING | closed; its body is in the journal, and the participants are asked whether they have it |
| PLACED | everybody who has to hold it does; its prepare has to be judged at its place in the order |
| PREPARED | it can be committed, whatever others do; waits for its decision |
| COMMITTING | decided and accepted: from here on an ordinary write |
| COMMITTED, ABORTED | over |
| HEURISTIC | a person decided, here or at another master: reported until it is forgotten |
| FORGOTTEN | nobody needs to be told any more |

| participant | means |
|---|---|
| COLLECTING | takes events in order |
| CLOSED | has all of them, and they are what the primary says; the prepare record is not durable here yet |
| PREPARED | the prepare record is durable here |
| REFUSED | cannot take part; the primary was told why |
| DONE | the queue is left, nothing is held |

`COORDINATOR` and `PARTICIPANT` are the machines: the diagrams in PROTOCOL.md and the tests of all pairs are made from them. A pair
that is not in them changes nothing.

>>> after(Phase.OPEN, Step.CLOSE)
<Phase.PREPARING: 'preparing'>
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where a transaction stands at its coordinator."""

    OPEN = "open"
    PREPARING = "preparing"
    PLACED = "placed"
    PREPARED = "prepared"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"
    HEURISTIC = "heuristic"
    FORGOTTEN = "forgotten"


class Step(StrEnum):
    """What may change that."""

    CLOSE = "close"
    """It is to be prepared: no more operations, nobody joins."""
    VOTED = "voted"
    """Enough participants have what one client commits durably, and none refused."""
    PLACE = "place"
    """Enough participants have what a transaction manager prepares: its prepare takes its place in the order."""
    JUDGED = "judged"
    """Nothing spoke against it there."""
    COMMIT = "commit"
    """Decided; an open one only when nobody else has to prepare it."""
    NOTHING = "nothing"
    """It has no operations: there is nothing to decide."""
    ROLLBACK = "rollback"
    """By its client, its time-out, a refusal, because too few are left, or because its prepare was rejected."""
    BY_HAND = "by hand"
    """A person decided, in the transaction manager's place."""
    APPLIED = "applied"
    REJECTED = "rejected"
    """The probe rejected what one client committed: nothing happened."""
    OVERRULED = "overruled"
    """What was prepared was no longer there when it was committed: a person had ended it elsewhere."""
    FORGET = "forget"


COORDINATOR: dict[tuple[Phase, Step], Phase] = {
    (Phase.OPEN, Step.CLOSE): Phase.PREPARING,
    (Phase.OPEN, Step.COMMIT): Phase.COMMITTING,
    (Phase.OPEN, Step.NOTHING): Phase.COMMITTED,
    (Phase.OPEN, Step.ROLLBACK): Phase.ABORTED,
    (Phase.PREPARING, Step.VOTED): Phase.PREPARED,
    (Phase.PREPARING, Step.PLACE): Phase.PLACED,
    (Phase.PREPARING, Step.ROLLBACK): Phase.ABORTED,
    (Phase.PLACED, Step.JUDGED): Phase.PREPARED,
    (Phase.PLACED, Step.ROLLBACK): Phase.ABORTED,
    (Phase.PLACED, Step.BY_HAND): Phase.HEURISTIC,
    (Phase.PREPARED, Step.COMMIT): Phase.COMMITTING,
    (Phase.PREPARED, Step.ROLLBACK): Phase.ABORTED,
    (Phase.PREPARED, Step.BY_HAND): Phase.HEURISTIC,
    (Phase.COMMITTING, Step.APPLIED): Phase.COMMITTED,
    (Phase.COMMITTING, Step.REJECTED): Phase.ABORTED,
    (Phase.COMMITTING, Step.OVERRULED): Phase.HEURISTIC,
    (Phase.HEURISTIC, Step.FORGET): Phase.FORGOTTEN,
}
"""Every change there is at the coordinator."""


class Part(StrEnum):
    """Where a transaction stands at a participant."""

    COLLECTING = "collecting"
    CLOSED = "closed"
    PREPARED = "prepared"
    REFUSED = "refused"
    DONE = "done"


class Seen(StrEnum):
    """What may change that."""

    PREPARE = "prepare"
    """The prepare event came, everything before it is here, and the digest is right."""
    DURABLE = "durable"
    """The prepare record is durable here."""
    UNFIT = "unfit"
    """Over a limit, a gap that is not filled, another digest."""
    ENDED = "ended"
    """Its decision is known: by an event, or by the journal."""
    NEW_VIEW = "new view"
    """Another primary acts."""


PARTICIPANT: dict[tuple[Part, Seen], Part] = {
    (Part.COLLECTING, Seen.PREPARE): Part.CLOSED,
    (Part.COLLECTING, Seen.UNFIT): Part.REFUSED,
    (Part.COLLECTING, Seen.ENDED): Part.DONE,
    (Part.COLLECTING, Seen.NEW_VIEW): Part.DONE,
    (Part.CLOSED, Seen.DURABLE): Part.PREPARED,
    (Part.CLOSED, Seen.ENDED): Part.DONE,
    (Part.CLOSED, Seen.NEW_VIEW): Part.DONE,
    (Part.PREPARED, Seen.ENDED): Part.DONE,
    (Part.PREPARED, Seen.NEW_VIEW): Part.DONE,
    (Part.REFUSED, Seen.ENDED): Part.DONE,
    (Part.REFUSED, Seen.NEW_VIEW): Part.DONE,
}
"""Every change there is at a participant. One that refused takes no events any more, but still hears how it ended."""


def after(phase: Phase, step: Step) -> Phase:
    """The phase after a step; the same one when the step means nothing there."""
    return COORDINATOR.get((phase, step), phase)


def after_seen(part: Part, seen: Seen) -> Part:
    """Where a participant is after something; the same when that means nothing there."""
    return PARTICIPANT.get((part, seen), part)
