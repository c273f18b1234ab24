"""What is made from files follows them, also when they could not be read for a while."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from brokerha.http.replaced import LOOK_EVERY_S, Replaced
from brokerha.model.errors import ConfigurationError


def test_a_file_that_could_not_be_read_is_tried_again_although_nobody_replaces_it_once_more(tmp_path: Path) -> None:
    file, now_s = tmp_path / "users.toml", [0.0]
    file.write_text("old")
    is_readable = True

    def made() -> str:
        if not is_readable:
            raise ConfigurationError("permission denied")
        return file.read_text()

    current = Replaced("users", (file,), made, lambda: now_s[0])
    # Another file of an owner whose files this process may not read.
    file.write_text("another")
    is_readable = False
    with capture_logs() as logs:
        for _ in range(3):
            now_s[0] += LOOK_EVERY_S
            assert current() == "old"
        is_readable = True
        now_s[0] += LOOK_EVERY_S
        assert current() == "another"
    assert [each["log_level"] for each in logs] == ["warning", "info"], "a line for what changed, and not one each second"
