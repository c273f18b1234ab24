"""Every copy keeps the contract: that in files, that of the simulator and the model. Each is a store as well."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerha.ports.copies import WorkerCopy as Port
from brokerha.ports.store import Store
from brokerha.stores.copies.worker_copy import WorkerCopy
from brokerha.stores.execution.worker_store import StoreOptions
from tests.contracts.copy_contract import CopyContract
from tests.contracts.kept_contract import KeptContract
from tests.contracts.store_contract import StoreContract
from tests.support.memory_store.worker_copy import MemoryCopy

SMALL = StoreOptions(map_size_bytes=64 * 1024 * 1024)


@pytest.fixture
def free_bytes() -> list[int]:
    return [1 << 40]


class InMemory:
    """Copies without files."""

    @pytest.fixture
    def opened(self, free_bytes: list[int]) -> Callable[[str], Port]:
        self.numbers = itertools.count()
        return lambda _node: MemoryCopy(self.name, free_bytes=lambda: free_bytes[0])

    @pytest.fixture
    def reopened(self) -> Callable[[MemoryCopy], Port]:
        return MemoryCopy.restarted

    def name(self) -> str:
        return f"j{next(self.numbers)}"


class InFiles:
    """Copies in directories."""

    @pytest.fixture
    def opened(self, tmp_path: Path, free_bytes: list[int]) -> Iterator[Callable[[str], Port]]:
        self.copies: dict[WorkerCopy, str] = {}

        def open_one(node: str) -> Port:
            copy = WorkerCopy(
                tmp_path / node,
                cluster="orders",
                node=node,
                options=SMALL,
                chunk_bytes=1000,
                free_bytes=lambda _directory: free_bytes[0],
            )
            self.copies[copy] = node
            return copy

        self.open_one = open_one
        yield open_one
        for copy in self.copies:
            copy.close()

    @pytest.fixture
    def reopened(self) -> Callable[[WorkerCopy], Port]:
        def reopen(copy: WorkerCopy) -> Port:
            copy.close()
            return self.open_one(self.copies[copy])

        return reopen


class _AsStores:
    """The fixtures of the contract of stores."""

    @pytest.fixture
    def store(self, opened: Callable[[str], Port]) -> Store:
        return opened("w1")

    @pytest.fixture
    def other(self, opened: Callable[[str], Port]) -> Store:
        return opened("w2")


class TestMemoryCopy(InMemory, CopyContract, KeptContract):
    """The model, as a copy."""


class TestMemoryCopyAsStore(_AsStores, InMemory, StoreContract):
    """The model, as a store."""


class TestWorkerCopy(InFiles, CopyContract, KeptContract):
    """The copy in files."""


class TestWorkerCopyAsStore(_AsStores, InFiles, StoreContract):
    """The copy in files, as a store."""
