"""The text of an xid, as coordinators write it."""

from __future__ import annotations

import pytest

from brokerha.model.ids import Xid


@pytest.mark.parametrize("text", ["", "order-1", "1:6f", "x:6f:", "1:zz:", "1:6f:0", "\u00b2:6f:"])
def test_what_is_no_xid_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="is no xid: write format:gtrid:bqual, the last two in hexadecimal"):
        Xid.parse(text)
