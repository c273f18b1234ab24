"""Alert rules and charts ask only for what nodes tell, each alert has its runbook, and every bad state has its alert."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from brokerha.http.operating.families import FAMILIES, PREFIX, Family
from brokerha.model import states
from tests.docs.pages import ROOT, blocks, blocks_of, pages, rows_of, text_of
from tests.support.promql import COUNTERS, Expression, Selector, parse

ALERTS = (
    "BrokerhaNodeDown", "BrokerhaActionNeeded", "BrokerhaDegradedLong", "BrokerhaLagging", "BrokerhaNotSynchronising",
    "BrokerhaMasterExcluded", "BrokerhaSplit", "BrokerhaCopyDiffers", "BrokerhaInDoubt", "BrokerhaBrokerUnreachable",
    "BrokerhaBrokerBlocked", "BrokerhaDiskFull", "BrokerhaMessagesRejected", "BrokerhaSlowDisk", "BrokerhaSlowCommits",
    "BrokerhaLogNearLimit",
)  # fmt: skip
OF_PROMETHEUS = {"up": ("job", "instance"), "ALERTS": ("alertname", "alertstate", "job", "instance")}
"""Metrics that Prometheus makes itself."""
RUNBOOKS = "docs/runbooks.md"
RULES_FILE = ROOT / "docs/monitoring/alerts.yml"
RULES: list[dict[str, Any]] = importlib.import_module("yaml").safe_load(RULES_FILE.read_text(encoding="utf-8"))["groups"][0][
    "rules"
]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs/monitoring/grafana.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in RULES] + [
    (panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]
]


def family_of(name: str) -> Family | None:
    """By the name of one of its samples."""
    short = name.removeprefix(PREFIX)
    if short in FAMILIES:
        return FAMILIES[short] if FAMILIES[short].type != "histogram" else None
    of = FAMILIES.get(re.sub(r"_(bucket|sum|count)$", "", short))
    return of if of is not None and of.type == "histogram" else None


def labels_of(selector: Selector) -> set[str]:
    """Labels that its series have."""
    if selector.name in OF_PROMETHEUS:
        return {*OF_PROMETHEUS[selector.name]}
    family = family_of(selector.name)
    assert family is not None, f"no node tells {selector.name}"
    return {*family.labels, "job", "instance"} | ({"le"} if selector.name.endswith("_bucket") else set())


def words_in(selector: Selector) -> Iterator[str]:
    for label, operator, value in selector.matchers:
        if label == "state":
            assert operator in {"=", "=~"}
            yield from value.split("|")


@pytest.mark.parametrize(("place", "text"), EXPRESSIONS)
def test_rules_and_charts_ask_only_for_what_there_is(place: str, text: str) -> None:
    found = parse(text)
    there: set[str] = set()
    for selector in found.selectors:
        labels = labels_of(selector)
        there |= labels
        assert {matcher.label for matcher in selector.matchers} <= labels, f"{place}: {selector}"
        assert {*words_in(selector)} <= {*states.ACTIONS}, f"{place}: {selector}"
        grows = selector.name.startswith(PREFIX) and getattr(family_of(selector.name), "type", "") != "gauge"
        # The rate of a gauge is nonsense, and a counter as it stands says nothing.
        assert (selector.function in COUNTERS) is grows, f"{place}: {selector}"
    assert {label for grouping in found.groupings for label in grouping} <= there, place
    assert {*found.joined} <= there, place


def test_there_is_a_rule_for_each_alert_and_no_other() -> None:
    assert tuple(rule["alert"] for rule in RULES) == ALERTS


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_is_wrong_and_where_to_read_what_to_do(rule: dict[str, Any]) -> None:
    assert {*rule} - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    notes: dict[str, str] = rule["annotations"]
    assert {*notes} == {"summary", "description", "runbook_url"}
    assert notes["runbook_url"] == f"{RUNBOOKS}#{rule['alert'].lower()}"
    found = parse(rule["expr"])
    used = {*re.findall(r"\$labels\.(\w+)", " ".join(notes.values()))}
    assert used <= left_in(found)
    assert "job" not in used


def left_in(found: Expression) -> set[str]:
    """Labels of the result of a rule."""
    if found.groupings:
        return set.intersection(*({*grouping} for grouping in found.groupings))
    return set.intersection(*(labels_of(selector) for selector in found.selectors))


def test_each_alert_is_on_the_page_with_its_severity_and_has_a_runbook() -> None:
    told = {row[0].strip("`"): row[2] for row in rows_of("docs/monitoring.md") if row[0].startswith("`Brokerha")}
    assert told == {rule["alert"]: rule["labels"]["severity"] for rule in RULES}
    headings = re.findall(r"^#+ (Brokerha\w+)$", text_of(RUNBOOKS), re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)


def test_each_runbook_says_what_it_means_what_to_look_at_and_to_do_when_it_is_over_and_what_not_to_do() -> None:
    for section in re.split(r"^## ", text_of(RUNBOOKS), flags=re.MULTILINE)[1:]:
        assert re.findall(r"^\*\*(Means|Look at|Do|Over|Not)\*\*", section, re.MULTILINE) == [
            "Means",
            "Look at",
            "Do",
            "Over",
            "Not",
        ], section


def test_each_state_that_is_not_healthy_fires_exactly_one_alert() -> None:
    of: dict[str, list[str]] = {}
    for rule in RULES:
        for selector in parse(rule["expr"]).selectors:
            for word in words_in(selector):
                of.setdefault(word, []).append(rule["alert"])
    # That others left it out is seen by those, and told by them: it may not be heard itself
    of.setdefault(states.EXCLUDED, []).append("BrokerhaMasterExcluded")
    of.setdefault(states.DIFFERS, []).append("BrokerhaCopyDiffers")
    assert {*of} == {*states.ACTIONS} - states.HEALTHY
    assert {word: alerts for word, alerts in of.items() if len(alerts) != 1} == {}
    # And what does not pass by itself is not among those that may wait a quarter of an hour
    assert {word for word, (alert,) in of.items() if alert == "BrokerhaDegradedLong"} <= states.DEGRADED
    assert {word for word, (alert,) in of.items() if alert == "BrokerhaActionNeeded"}.isdisjoint(states.DEGRADED)


def test_what_the_page_tells_prometheus_to_do_is_what_the_rules_expect() -> None:
    told, with_users = (importlib.import_module("yaml").safe_load(block.text) for block in blocks_of("docs/monitoring.md", "yaml"))
    assert told["rule_files"] == [RULES_FILE.name]
    (job,) = with_users["scrape_configs"]
    assert (job["scheme"], *job["authorization"]) == ("https", "credentials_file")
    assert {each["job_name"] for each in (*told["scrape_configs"], job)} == {
        matcher.value
        for rule in RULES
        for selector in parse(rule["expr"]).selectors
        for matcher in selector.matchers
        if matcher.label == "job"
    }
    for block in blocks("promql"):
        assert all(labels_of(selector) for selector in parse(block.text).selectors)


def test_pages_name_only_metrics_that_exist() -> None:
    named = {
        (page, name)
        for page in pages()
        if "/decisions/" not in page
        for name in re.findall(r"`(brokerha_[a-z_]+)\b", text_of(page))
    }
    assert {name for _, name in named} >= {"brokerha_state_info", "brokerha_node_info"}
    there = {f"{PREFIX}{name}" for name in FAMILIES}
    assert [(page, name) for page, name in sorted(named) if name not in there] == []


def test_the_dashboard_lies_on_its_grid_and_shows_something_everywhere() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert max(x for x, _ in cells) < 24
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["title"]
        assert panel["targets"]
        # Whose Prometheus it is, is chosen when it is imported.
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_promtool_agrees() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    for step in (["check", "rules", str(RULES_FILE)], ["test", "rules", str(ROOT / "tests/docs/alerts_test.yml")]):
        done = subprocess.run([promtool, *step], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "a ==", "a)", "(a", "sum by job (a)", "rate(a)", "a[5m]", "changed(a[5m])", "a{b}", 'a{b="c}', "a b", "1 + 1",
        "a and bool b", "rate(sum(a)[5m])",
    ],
)  # fmt: skip
def test_what_is_no_promql_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)
