"""Reads Prometheus' text format 0.0.4, and refuses whatever a collector might read otherwise, or be unable to type."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_VALUE = re.compile(r"[+-]?(\d+(\.\d+)?([eE][+-]?\d+)?|Inf)|NaN")
_OF_HISTOGRAM = ("_bucket", "_sum", "_count")

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One line."""

    name: str
    labels: Labels
    value: float


class Read(NamedTuple):
    """One family."""

    type: str
    help: str
    samples: list[Sample]

    def labels(self) -> set[tuple[str, ...]]:
        """The names of the labels that its samples have, without the bounds of buckets."""
        return {tuple(name for name, _ in each.labels if name != "le") for each in self.samples}


def read(text: str) -> dict[str, Read]:
    """Families by name. Raises ValueError with the line that is wrong."""
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    found: dict[str, Read] = {}
    help_of, name = ("", ""), ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, family, told = line.split(" ", 3)
            help_of = family, told
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name in found or help_of[0] != name or not help_of[1] or not NAME.fullmatch(name):
                raise ValueError(f"a second time, or without help: {line}")
            if kind not in {"counter", "gauge", "histogram"}:
                raise ValueError(f"no type: {line}")
            if (kind == "counter") is not name.endswith("_total"):
                raise ValueError(f"counters, and only they, end in _total: {line}")
            found[name] = Read(kind, help_of[1], [])
        else:
            sample = _sample(line)
            if name not in _families_of(sample.name, found):
                raise ValueError(f"not below its own family: {line}")
            found[name].samples.append(sample)
    for family, each in found.items():
        _check(family, each)
    return found


def _families_of(sample: str, found: dict[str, Read]) -> set[str]:
    names = {sample} if sample in found and found[sample].type != "histogram" else set()
    of, _, end = sample.rpartition("_")
    if of in found and found[of].type == "histogram" and f"_{end}" in _OF_HISTOGRAM:
        names.add(of)
    return names


def _sample(line: str) -> Sample:
    parts = _SAMPLE.fullmatch(line)
    if parts is None or not _VALUE.fullmatch(parts[3]):
        raise ValueError(f"no sample: {line}")
    labels, at, text = [], 0, parts[2] or ""
    while at < len(text):
        pair = _LABEL.match(text, at)
        if pair is None:
            raise ValueError(f"no labels: {line}")
        labels.append((pair[1], pair[2]))
        at = pair.end()
    if len({label for label, _ in labels}) < len(labels):
        raise ValueError(f"a label twice: {line}")
    return Sample(parts[1], tuple(labels), float(parts[3]))


def _check(name: str, family: Read) -> None:
    keys = [(each.name, each.labels) for each in family.samples]
    if not keys or len({*keys}) < len(keys):
        raise ValueError(f"no samples, or one of them twice: {name}")
    if len(family.labels()) > 1:
        raise ValueError(f"samples with different labels: {name}: {family.labels()}")
    if family.type == "counter" and not all(0 <= each.value < math.inf for each in family.samples):
        raise ValueError(f"a counter below 0, or without end: {name}")
    if family.type == "histogram":
        _check_histogram(name, family.samples)


def _check_histogram(name: str, samples: Iterable[Sample]) -> None:
    of: dict[str, list[Sample]] = {end: [] for end in _OF_HISTOGRAM}
    for each in samples:
        of[each.name.removeprefix(name)].append(each)
    bounds = [float(dict(each.labels)["le"]) for each in of["_bucket"]]
    counts = [each.value for each in of["_bucket"]]
    if any(low >= high for low, high in pairwise(bounds)) or bounds[-1:] != [math.inf]:
        raise ValueError(f"buckets of {name} are not in order up to +Inf: {bounds}")
    if any(low > high for low, high in pairwise(counts)):
        raise ValueError(f"buckets of {name} do not hold those below them: {counts}")
    if [each.value for each in of["_count"]] != counts[-1:] or len(of["_sum"]) != 1:
        raise ValueError(f"{name} has no sum, or its count is not that of its last bucket")
