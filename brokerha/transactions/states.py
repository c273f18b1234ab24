"""The two machines of a transaction: coordinator at the primary, participant at a backup (transactions, sections 2 to 6).

| coordinator | means |
|---|---|
| OPEN | collects operations; nothing of it is durable |
| PREPARING | closed; its body is in the journal, and the participants are asked whether they have it |
| PLACED | all that must hold it do; its prepare has to be judged at its place in the order |
| PREPARED | it can be committed, whatever other transactions do; waits for its decision |
| COMMITTING | decided and accepted: from here on an ordinary write |
| COMMITTED, ABORTED | over |
| HEURISTIC | a person decided, here or at another master: reported until it is forgotten |
| FORGOTTEN | needs no report any more |

| participant | means |
|---|---|
| COLLECTING | takes events in order |
| CLOSED | has all events, with the digest of the primary; the prepare record is not durable here yet |
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
    """The phase of a transaction at its coordinator."""

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
    """Events that change the phase."""

    CLOSE = "close"
    """It is to be prepared: no more operations or participants."""
    VOTED = "voted"
    """Enough participants durably hold a commit of one client, and none refused."""
    PLACE = "place"
    """Enough participants hold a prepare of a transaction manager: it takes its place in the order."""
    JUDGED = "judged"
    """Its prepare was not rejected there."""
    COMMIT = "commit"
    """Decided; an open one only when no other process has to prepare it."""
    NOTHING = "nothing"
    """It has no operations: no decision is needed."""
    ROLLBACK = "rollback"
    """By its client, its timeout, a refusal, because too few participants are left, or because its prepare was rejected."""
    BY_HAND = "by hand"
    """A person decided, in the transaction manager's place."""
    APPLIED = "applied"
    REJECTED = "rejected"
    """The probe rejected the commit of one client: it had no effect."""
    OVERRULED = "overruled"
    """The prepared changes were gone at the commit: a person had ended it elsewhere."""
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
"""All transitions of the coordinator."""


class Part(StrEnum):
    """The state of a transaction at a participant."""

    COLLECTING = "collecting"
    CLOSED = "closed"
    PREPARED = "prepared"
    REFUSED = "refused"
    DONE = "done"


class Seen(StrEnum):
    """Events that change the state."""

    PREPARE = "prepare"
    """The prepare event came, all events before it are here, and the digest is right."""
    DURABLE = "durable"
    """The prepare record is durable here."""
    UNFIT = "unfit"
    """Over a limit, a gap that is not filled, another digest."""
    ENDED = "ended"
    """Its end is known: by an event, or by the journal."""
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
"""All transitions of a participant. A participant that refused takes no more events, but still hears the end."""


def after(phase: Phase, step: Step) -> Phase:
    """Return the phase after a step; the same one when the step has no effect there."""
    return COORDINATOR.get((phase, step), phase)


def after_seen(part: Part, seen: Seen) -> Part:
    """Return the state after an event; the same one when the event has no effect there."""
    return PARTICIPANT.get((part, seen), part)
