"""What can be read as an input: files, compressed ones, pipes."""

from __future__ import annotations

import gzip
import os
import threading

import pytest
import typer

from brokerha.cli.common.inputs import opened, read_progress, read_text


@pytest.fixture
def pipe(tmp_path):
    """A pipe with a name, as ``<(command)`` of a shell is; somebody writes one line into it."""
    path = tmp_path / "pipe.nt"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"<urn:a> <urn:b> <urn:c> .\n",))
    writer.start()
    yield path
    writer.join(10)


def test_a_byte_order_mark_before_a_text_is_no_part_of_it(tmp_path):
    (tmp_path / "a.rq").write_bytes(b"\xef\xbb\xbfASK { }")
    assert read_text(None, tmp_path / "a.rq", "the query") == "ASK { }"


def test_a_pipe_is_read_as_far_as_it_goes_and_has_no_size(pipe):
    with opened(str(pipe)) as source, read_progress("pipe", source) as look:
        assert source.size_bytes is None
        assert source.content.read() == b"<urn:a> <urn:b> <urn:c> .\n"
        look()


@pytest.mark.parametrize("damage", [slice(0, 2), slice(40, 60), slice(-8, -4), slice(-20, None)])
def test_a_compressed_file_that_is_damaged_is_a_mistake_and_no_fault_of_ours(tmp_path, damage):
    content = bytearray(gzip.compress(b"abc\n" * 5000 + bytes(range(256)) * 50))
    content[damage] = b"" if damage.stop is None else b"\xff" * len(content[damage])
    (tmp_path / "a.nt.gz").write_bytes(content)
    with pytest.raises(typer.BadParameter, match=r"a\.nt\.gz cannot be read"), opened(str(tmp_path / "a.nt.gz")) as source:
        source.content.read()
