"""The state folder of a load: what it is, and what of it is done. Every task writes into it, so on a cluster it lies on shared storage.

    load.json                    key, cluster, files and options of the load; never changes
    lock                         held by the program that runs it
    stop-5f0c9d21                tells all tasks of one run to end early
    splits/00001-000003.json     a split that is done, with its numbers
    splits/00001-000003.mark     how far one is that is not: all batches up to this one were applied
    rejects/00001-000003.jsonl   rejects of a split, with line numbers within it
    rejects.jsonl                all of them, with line numbers of the file

Each file is written beside, made durable and renamed; unfinished ones have a random name that ends in `.new`, because a task may run twice at
once, and one of a run that was killed may go on for a moment beside the next run. It can do no harm: it sends the same transactions, and the
word to stop is one of its own run. A split counts as done when its `.json` is there, which is written after its last transaction was answered.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from brokerha.model.errors import ConfigurationError, InvalidRequest
from brokerha.pipeline.loading import Reject, Split, SplitResult
from brokerha.stores.durable_files import fsync_path

VERSION: Final = 1
_FRESH: Final = ".new"


class Mark(NamedTuple):
    """How far a split is."""

    batches: int
    """All batches up to this one were applied, or had nothing to send."""
    position: int
    """Bytes of the split that are behind them."""


class Ledger:
    """A state folder. Raises ConfigurationError when the folder cannot be read or written."""

    def __init__(self, directory: str, run: str = "") -> None:
        """``run`` names the run of the program that its tasks belong to."""
        self.directory = Path(directory)
        self._splits = self.directory / "splits"
        self._rejects = self.directory / "rejects"
        self._stop = self.directory / f"stop-{run}"

    def begin(self, load: dict[str, Any]) -> dict[str, Any]:
        """Make the folder what this load needs, or find in it what an earlier run of it wrote; returns that.

        ``load`` has a new ``key``. Raises InvalidRequest when the folder belongs to another load.
        """
        with _clear_errors(self.directory):
            self._splits.mkdir(parents=True, exist_ok=True)
            self._rejects.mkdir(exist_ok=True)
            path = self.directory / "load.json"
            if not path.exists():
                write_whole(path, json.dumps({"version": VERSION, **load}, indent=1).encode())
            found: dict[str, Any] = json.loads(path.read_bytes())
            for left in (*self.directory.glob("stop-*"), *self.directory.glob(f"*/*{_FRESH}")):
                left.unlink(missing_ok=True)
        for name, wanted in [("version", VERSION), *load.items()]:
            if name != "key" and found.get(name) != wanted:
                raise InvalidRequest(
                    f"{self.directory} belongs to another load ({_difference(name, found.get(name), wanted)}): "
                    "give another folder with --state, or delete this one to begin anew"
                )
        return found

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else runs this load. Raises InvalidRequest when somebody does."""
        with _clear_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            file = (self.directory / "lock").open("wb")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InvalidRequest(f"another program runs the load in {self.directory}: wait for it") from None
            yield

    # ---- splits

    def result(self, split: Split) -> SplitResult | None:
        """What became of a split that is done; None for any other."""
        found = _read_json(self._splits / f"{split.name}.json")
        return SplitResult(**found) if found is not None else None

    def finish(self, result: SplitResult) -> None:
        """A split is done."""
        write_whole(self._splits / f"{result.name}.json", json.dumps(asdict(result)).encode())
        (self._splits / f"{result.name}.mark").unlink(missing_ok=True)

    def mark(self, split: Split, mark: Mark) -> None:
        """Everything up to here was applied."""
        write_whole(self._splits / f"{split.name}.mark", json.dumps(mark).encode())

    def marked(self, split: Split) -> Mark:
        """Where to go on."""
        found = _read_json(self._splits / f"{split.name}.mark")
        return Mark(*found) if found is not None else Mark(0, 0)

    def done_bytes(self, sizes: dict[str, int]) -> int:
        """How much of the splits with these sizes is done. Cheap enough to be asked once a second."""
        done = 0
        for entry in os.scandir(self._splits):
            name, _, kind = entry.name.partition(".")
            if kind == "json":
                done += sizes.get(name, 0)
            elif kind == "mark":
                found = _read_json(Path(entry.path))
                done += min(int(found[1]), sizes.get(name, 0)) if found is not None else 0
        return done

    # ---- the end of a run

    def stop(self) -> None:
        """Tell all tasks to end."""
        self._stop.touch()

    @property
    def is_stopped(self) -> bool:
        """Whether somebody did."""
        return self._stop.exists()

    # ---- rejects

    @contextlib.contextmanager
    def rejects_of(self, split: Split) -> Iterator[IO[bytes]]:
        """A file for the rejects of a split, which takes the place of that of an earlier run when the block ends well."""
        path = self._rejects / f"{split.name}.jsonl"
        with whole_file(path) as file:
            yield file

    def read_rejects(self, split: Split) -> Iterator[Reject]:
        """Rejects of a split, as its task wrote them."""
        with contextlib.suppress(FileNotFoundError), (self._rejects / f"{split.name}.jsonl").open("rb") as file:
            for line in file:
                yield Reject(*json.loads(line))


def write_reject(file: IO[bytes], reject: Reject) -> None:
    """One line of a task's rejects."""
    file.write(json.dumps(reject).encode() + b"\n")


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of ``path`` when the block ends well, whoever else writes it at the same time. Raises OSError."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(6)}{_FRESH}")
    try:
        with fresh.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        fsync_path(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """A small file with this content, in one piece. Raises OSError."""
    with whole_file(path) as file:
        file.write(content)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _clear_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"the state folder {directory} cannot be used: {error.strerror or error}; name another one with --state"
        ) from None
    except ValueError:
        raise ConfigurationError(f"{directory}/load.json is damaged: name another folder with --state") from None


def _difference(name: str, found: Any, wanted: Any) -> str:
    """What is not the same, in few words.

    >>> _difference("repository", "main", "other")
    "repository is 'main' there and 'other' here"
    """
    if name == "files" and isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        changed = [one for one, other in zip(wanted, found, strict=True) if one != other]
        if [one["path"] for one in wanted] == [one["path"] for one in found]:
            return f"{changed[0]['path']} has changed since"
    if isinstance(found, list | dict) or isinstance(wanted, list | dict):
        return f"{name} are others"
    return f"{name} is {found!r} there and {wanted!r} here"
