"""Shapes of splits, as data: which links are cut, how, and who hears a majority all the time then.

m1 | m2 m3     one is alone, two go on             deaf      one is heard, and hears nobody
bridge         one link cut, the third sees both   mute      one hears the others, nobody hears it
circle         each hears one, in a circle         all apart nobody hears anybody
swizzle        all links cut one after another, then healed one after another
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from tests.support.links import BLACK_HOLE, RESET
from tests.system.split_sites import MASTERS, SplitSites
from tests.system.test_splits import Split, deaf, halves, mute, one_link

KINDS = ("m1 alone", "m2 alone", "m3 alone", "bridge", "deaf", "mute", "circle", "all apart", "swizzle")
"""One word for each of `shapes`, in their order."""


@dataclass(frozen=True)
class Shape:
    """A split of one round; ``majority`` are the masters that hear, or are told of, a majority all the time."""

    name: str
    split: Split
    majority: tuple[str, ...] = ()
    is_swizzle: bool = False
    """Whether its links are cut and healed one after another."""


def circle(turn: int, how: str) -> Split:
    """Each hears one of the others, in a circle, and none of them the one that it is heard by: nobody gets an answer to a question."""
    pairs = zip(MASTERS, (*MASTERS[1:], MASTERS[0]), strict=True)
    links = [f"{there}>{here}" if turn % 2 else f"{here}>{there}" for here, there in pairs]
    return Split("circle: each hears one", tuple(links), how=how)


def all_links(name: str, how: str) -> Split:
    """Every link there is."""
    return Split(name, tuple(f"{here}>{there}" for here in MASTERS for there in MASTERS if here != there), how=how)


def shapes(turn: int) -> list[Shape]:
    """All shapes for this round; who it is, and how links are cut, goes round with the rounds."""
    hows = [(RESET, BLACK_HOLE)[(turn + number) % 2] for number in range(9)]
    one = MASTERS[turn % len(MASTERS)]
    left, right = others = tuple(master for master in MASTERS if master != one)
    alone = [
        Shape(split.name, split, tuple(master for master in MASTERS if master != split.alone))
        for split in (halves(master, how) for master, how in zip(MASTERS, hows, strict=False))
    ]
    bridge = one_link(left, right, hows[4])
    half_heard = [deaf(one, hows[5]), mute(one, hows[6])]
    return [
        *alone,
        # Of three sites this is the majority ring, too: each hears a majority, and no two the same one.
        Shape(bridge.name, bridge, MASTERS),
        *(Shape(split.name, split, others) for split in half_heard),
        Shape("circle", circle(turn, hows[3])),
        Shape("all apart", all_links("all apart", hows[7])),
        Shape("swizzle", all_links("swizzle", hows[8]), is_swizzle=True),
    ]


def pass_through(sites: SplitSites, shape: Shape, seconds: float, draw: random.Random) -> None:
    """The split from its beginning to the moment before it is healed."""
    end = time.monotonic() + seconds
    if not shape.is_swizzle:
        shape.split.cut(sites)
    else:
        links = list(shape.split.links)
        step_s = seconds / (2 * len(links))
        for harm in (lambda name: sites.links.cut(name, how=shape.split.how), lambda name: sites.links.of[name].heal()):
            draw.shuffle(links)
            for name in links:
                harm(name)
                time.sleep(step_s)
    time.sleep(max(0.0, end - time.monotonic()))
