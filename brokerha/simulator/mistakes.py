"""Planted mistakes."""
from contextlib import contextmanager
from collections.abc import Iterator
@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Nothing yet."""
    yield
