"""The status page: files under a strict policy, and what it asks for, answered once for all who look."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from brokerha.http import page
from brokerha.http.door.door import Door, HttpLimits
from brokerha.model import states
from brokerha.model.errors import NotReady
from tests.unit.http.asking import Node
from tests.unit.http.fake_front import FakeFront

RATES = {"master": "m1", "every_s": 10.0, "now_ms": 1000, "last": 3, "names": ["writes_per_s"], "samples": [[3, 900, 1.5]]}


# ---- files


def test_the_page_and_each_file_that_it_names_is_served_with_its_type(node: Node) -> None:
    root = node.get("/")
    named = re.findall(r'(?:href|src)="(page/[^"]+)"', root.text)

    assert (root.status, root.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert set(named) == {"page/icon.svg", "page/page.css", "page/page.js"}
    for name in set(page.TYPES) - {"index.html"}:
        answer = node.get(f"/page/{name}")
        assert (answer.status, answer.headers["content-type"]) == (200, page.TYPES[name])
        assert answer.body == (page.FILES / name).read_bytes()


def test_every_file_beside_the_page_is_served_and_every_import_leads_to_one() -> None:
    there = {file.name for file in page.FILES.iterdir()}
    imported = {
        name for file in page.FILES.glob("*.js") for name in re.findall(r'from "\./([^"]+)"', file.read_text(encoding="utf-8"))
    }

    assert there == set(page.TYPES)
    assert imported <= there


@pytest.mark.parametrize("name", ["nothing.js", "index.html", "..%2Fpage.py", "%2e%2e", "page.js%00"])
def test_nothing_else_is_served(node: Node, name: str) -> None:
    assert node.get(f"/page/{name}").status == 404


@pytest.mark.parametrize("target", ["/", "/page/page.js", "/page/page.css", "/page/live"])
def test_no_script_but_its_own_files_may_run(node: Node, target: str) -> None:
    headers = node.get(target).headers

    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_keeps_to_its_policy_by_itself(node: Node) -> None:
    html = node.get("/").text

    assert not re.search(r"<script(?![^>]*\bsrc=)", html)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", html)
    assert not re.search(r"https?://", html)


def test_no_script_turns_data_into_markup() -> None:
    for file in page.FILES.glob("*.js"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|\.style\b", text), (
            file.name
        )
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file.name


def test_a_file_that_the_browser_has_is_not_sent_again(node: Node) -> None:
    first = node.get("/page/page.js")
    again = node.get("/page/page.js", If_None_Match=f'"other", W/{first.headers["etag"]}')
    other = node.get("/page/page.js", If_None_Match='"other"')

    assert first.headers["cache-control"] == "no-cache"
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert "content-type" not in again.headers
    assert (other.status, other.body) == (200, first.body)


def test_a_head_has_the_headers_of_a_get_and_other_methods_are_refused(node: Node) -> None:
    for target in ("/", "/page/page.css"):
        get, head = node.get(target), node.ask("HEAD", target)
        assert (head.status, head.headers) == (200, get.headers)
    assert node.ask("POST", "/").status == 405
    assert node.ask("POST", "/page/live").headers["allow"] == "GET, HEAD"


def test_every_label_names_a_field_and_every_section_a_heading() -> None:
    html = (page.FILES / "index.html").read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([^"]+)"', html)
    named = re.findall(r'(?:aria-labelledby|for)="([^"]+)"', html) + re.findall(r'href="#([^"]+)"', html)

    assert len(ids) == len(set(ids))
    assert set(named) <= set(ids)
    asked = re.findall(
        r'(?:by|getElementById)\("([^"]+)"\)', "".join(file.read_text(encoding="utf-8") for file in page.FILES.glob("*.js"))
    )
    assert set(asked) <= set(ids)


# ---- what changes


def test_the_page_is_told_the_status_and_how_each_state_is_coloured(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    status = node.front.status()
    row = status["nodes"][0]
    status["nodes"] = [
        {**row, "id": word, **states.describe(word, "<b>")} for word in (states.OK, states.NO_MAJORITY, states.HALTED)
    ]
    monkeypatch.setattr(node.front, "status", lambda timeout_ms: status)

    answer = node.get("/page/live")

    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/json", "no-store")
    assert [row["kind"] for row in answer.json["status"]["nodes"]] == ["good", "warn", "bad"]
    assert answer.json["status"]["nodes"][2]["reason"] == "<b>"
    assert (answer.json["node"], answer.json["role"]) == ("m1", "master")


def test_every_state_word_has_a_colour() -> None:
    assert {page.kind_of(word) for word in states.ACTIONS} == {"good", "warn", "bad"}


def test_open_transactions_are_listed_up_to_a_limit(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"txid": f"t{number}", "state": "open"} for number in range(page.TRANSACTIONS_LIMIT + 5)]
    listed: Future[dict[str, Any]] = Future()
    listed.set_result({"transactions": rows})
    monkeypatch.setattr(node.front, "transact", lambda *_: listed)

    found = node.get("/page/live").json

    assert [row["txid"] for row in found["transactions"]] == [row["txid"] for row in rows[: page.TRANSACTIONS_LIMIT]]
    assert found["transactions_count"] == len(rows)


def test_the_page_comes_although_the_list_of_transactions_does_not(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: Future[dict[str, Any]] = Future()
    refused.set_exception(NotReady("too few backups confirm"))
    monkeypatch.setattr(node.front, "transact", lambda *_: refused)

    found = node.get("/page/live").json

    assert found["status"]["cluster"] == "orders"
    assert (found["transactions"], "too few backups" in found["transactions_note"]) == (None, True)


def test_a_worker_shows_the_cluster_and_says_who_has_the_rest() -> None:
    found = Node(FakeFront("worker", "w1")).get("/page/live").json

    assert (found["role"], found["transactions"]) == ("worker", None)
    assert "page of its master" in found["transactions_note"]


def test_samples_are_asked_for_after_a_number(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def command(name: str, arguments: dict[str, Any], _timeout_ms: int = 0) -> Future[dict[str, Any]]:
        asked.append((name, arguments))
        future: Future[dict[str, Any]] = Future()
        future.set_result(RATES)
        return future

    monkeypatch.setattr(node.front, "command", command)

    answer = node.get("/page/rates?after=2")

    assert (answer.json, answer.headers["cache-control"]) == (RATES, "no-store")
    assert asked == [("rates", {"after": 2})]
    assert node.get("/page/rates?after=x").status == 400


# ---- what it costs


def test_however_many_look_the_cluster_is_asked_once_within_a_time(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def status(timeout_ms: int) -> dict[str, Any]:
        asked.append(timeout_ms)
        return FakeFront.status(node.front)

    monkeypatch.setattr(node.front, "status", status)

    async def many() -> list[Any]:
        return await asyncio.gather(*(node.asked("GET", "/page/live", [], {}) for _ in range(20)))

    answers = asyncio.run(many())
    late = node.get("/page/live")

    assert {answer.status for answer in [*answers, late]} == {200}
    assert asked == [page.STATUS_TIMEOUT_MS]


def door() -> Door:
    return Door(FakeFront(), HttpLimits())


def test_a_shared_answer_is_found_again_when_it_is_old() -> None:
    async def ask() -> list[int]:
        shared, count = door(), iter(range(9))

        async def find() -> int:
            return next(count)

        first = [await shared.shared("x", 3600.0, find), await shared.shared("x", 3600.0, find)]
        other = await shared.shared("y", -1.0, find)
        return [*first, other, await shared.shared("y", -1.0, find)]

    assert asyncio.run(ask()) == [0, 0, 1, 2]


def test_a_failure_is_told_to_all_who_wait_and_to_nobody_after_them() -> None:
    async def ask() -> list[Any]:
        shared, outcomes = door(), iter([NotReady("not yet"), "found"])

        async def find() -> str:
            await asyncio.sleep(0)
            outcome = next(outcomes)
            if isinstance(outcome, NotReady):
                raise outcome
            return str(outcome)

        both = await asyncio.gather(*(shared.shared("x", 3600.0, find) for _ in range(2)), return_exceptions=True)
        return [*both, await shared.shared("x", 3600.0, find)]

    first, second, third = asyncio.run(ask())
    assert isinstance(first, NotReady)
    assert first is second
    assert third == "found"


def test_who_goes_away_takes_the_answer_from_nobody() -> None:
    async def ask() -> str:
        shared, may_go_on = door(), asyncio.Event()

        async def find() -> str:
            await may_go_on.wait()
            return "found"

        leaver = asyncio.create_task(shared.shared("x", 1.0, find))
        stayer = asyncio.create_task(shared.shared("x", 1.0, find))
        await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.sleep(0)
        may_go_on.set()
        return await stayer

    assert asyncio.run(ask()) == "found"


def test_the_files_are_part_of_the_package() -> None:
    # Hatch packs what lies in the folder of the package, and nothing that lies elsewhere.
    assert page.FILES.parent == Path(page.__file__).parent
