"""Users, passwords and definitions: what they hold, what never changes by itself, and what RabbitMQ 4 would refuse."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from brokerha.deploying import broker
from brokerha.deploying.broker import definitions_plan
from brokerha.deploying.files import Plan, write
from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.cluster import load_config
from brokerha.transports.topology import topology_of
from tests.unit.deploying.clusters import EMBEDDED, ONE_SITE, TWO_SITES, cluster

TAKEN_BY_4 = {"max-length-bytes", "federation-upstream-pattern"}
"""Keys of policies; what RabbitMQ 4 took away are ha-mode and its kin."""
QUEUE_ARGUMENTS = {
    "x-queue-type", "x-max-length-bytes", "x-overflow", "x-message-ttl", "x-expires", "x-stream-max-segment-size-bytes",
}  # fmt: skip


def made(
    text: str, folder: Path, environ: Mapping[str, str] | None = None, apps: tuple[str, ...] = ()
) -> tuple[Plan, dict[str, Any]]:
    """The plan, and the definitions by the names of their files."""
    config = cluster(text, folder)
    plan = definitions_plan(config, broker.parse_apps(apps, config), environ or {}, folder, folder / "secrets")
    return plan, {str(file.path): json.loads(file.text) for file in plan.files if file.path.suffix == ".json"}


def passwords(plan: Plan) -> dict[str, str]:
    return {file.path.stem: file.text.split("@")[0].rpartition(":")[2] for file in plan.files if file.path.suffix == ".url"}


def fits(hashed: str, password: str) -> bool:
    """As RabbitMQ compares them."""
    raw = base64.b64decode(hashed)
    return raw[4:] == hashlib.sha256(raw[:4] + password.encode()).digest()


def test_every_node_and_app_has_a_user_whose_password_stands_in_its_secret_alone(tmp_path: Path):
    plan, files = made(ONE_SITE, tmp_path)
    users = {user["name"]: user["password_hash"] for user in files["definitions.json"]["users"]}
    names = {"m1", "m1s", "w1", "w2", "app", "follower", "monitor", "admin"}
    assert set(users) == {f"orders.{name}" for name in names}
    known = passwords(plan)
    assert set(known) == names
    assert len(set(known.values())) == len(names)
    assert all(fits(users[f"orders.{name}"], password) for name, password in known.items())
    assert all(file.is_secret for file in plan.files)
    text = next(file.text for file in plan.files if file.path.suffix == ".json")
    assert not [password for password in known.values() if password in text]


def test_the_secrets_that_are_there_give_the_same_files_again(tmp_path: Path):
    plan, _ = made(ONE_SITE, tmp_path)
    write(plan, tmp_path, force=False)
    assert made(ONE_SITE, tmp_path)[0] == plan
    (tmp_path / "secrets" / "w1.url").unlink()
    again = made(ONE_SITE, tmp_path)[0]
    assert {name for name, password in passwords(again).items() if password != passwords(plan)[name]} == {"w1"}


def test_passwords_come_from_the_environment_or_from_files(tmp_path: Path):
    (tmp_path / "given").write_text("from a file\n", encoding="utf-8")
    environ = {"BROKERHA_PASSWORD_M1": "a/b:c@d", "BROKERHA_PASSWORD_APP_FILE": str(tmp_path / "given")}
    plan, files = made(ONE_SITE, tmp_path, environ)
    users = {user["name"]: user["password_hash"] for user in files["definitions.json"]["users"]}
    assert fits(users["orders.m1"], "a/b:c@d")
    assert fits(users["orders.app"], "from a file")
    urls = {file.path.stem: file.text.strip() for file in plan.files}
    assert urls["m1"] == "amqp://orders.m1:a%2Fb%3Ac%40d@rabbitmq:5672/orders"


def test_a_node_reads_its_url_from_its_secret(tmp_path: Path):
    config = cluster(ONE_SITE, tmp_path)
    plan, _ = made(ONE_SITE, tmp_path)
    write(plan, tmp_path, force=False)
    found = load_config(config.path, {"BROKERHA_CLUSTER_BROKER_FILE": str(tmp_path / "secrets" / "w1.url")})
    assert found.broker_of("w1").startswith("amqp://orders.w1:")


def test_what_nodes_declare_is_there_already_but_for_inboxes_which_come_with_their_connections(tmp_path: Path):
    _, files = made(ONE_SITE, tmp_path)
    there = files["definitions.json"]
    queues = {queue["name"]: queue["arguments"] for queue in there["queues"]}
    bindings = {(each["source"], each["destination"], each["routing_key"]) for each in there["bindings"]}
    for node, role, master in (("m1", "master", ""), ("m1s", "backup", "m1"), ("w1", "worker", ""), ("w2", "worker", "")):
        for row in topology_of(node, role, master).queues:
            assert row.is_exclusive == (row.name not in queues)
            if row.is_exclusive:
                continue
            assert queues[row.name] == row.arguments
            assert (row.exchange, row.name, row.key) in bindings
    assert queues["brokerha.m1.log"]["x-queue-type"] == "stream"


@pytest.mark.parametrize("text", [ONE_SITE, TWO_SITES])
def test_nothing_in_it_is_refused_by_rabbitmq_4(tmp_path: Path, text: str):
    for there in made(text, tmp_path)[1].values():
        assert all(queue["durable"] and not queue["auto_delete"] for queue in there["queues"])
        assert {name for queue in there["queues"] for name in queue["arguments"]} <= QUEUE_ARGUMENTS
        assert {queue["arguments"].get("x-queue-type", "classic") for queue in there["queues"]} == {"classic", "stream"}
        assert {name for policy in there["policies"] for name in policy["definition"]} <= TAKEN_BY_4
        assert [vhost["metadata"]["default_queue_type"] for vhost in there["vhosts"]] == ["classic"]
        assert "guest" not in {user["name"] for user in there["users"]}


def test_every_user_with_rights_has_rights_by_key_too(tmp_path: Path):
    """Where RabbitMQ has none it allows every key."""
    for there in made(TWO_SITES, tmp_path)[1].values():
        assert {row["user"] for row in there["topic_permissions"]} == {row["user"] for row in there["permissions"]}


def test_patterns_are_of_whole_names(tmp_path: Path):
    there = made(ONE_SITE, tmp_path)[1]["definitions.json"]
    for row in there["permissions"]:
        for what in ("configure", "write", "read"):
            pattern = row[what]
            assert re.compile(pattern).groups >= 0
            assert (pattern.startswith("^") and pattern.endswith("$")) or row["user"] == "orders.admin"


def test_each_broker_has_its_nodes_and_fetches_from_the_others(tmp_path: Path):
    plan, files = made(TWO_SITES, tmp_path, apps=("app",))
    one, two = files["definitions.m1.json"], files["definitions.m2.json"]
    assert {user["name"] for user in one["users"]} == {"orders.m1", "orders.w1", "orders.app", "orders.link-m2"}
    assert {user["name"] for user in two["users"]} == {"orders.m2", "orders.w2", "orders.app", "orders.link-m1"}
    links = {row["name"]: row["value"] for row in one["parameters"] if row["component"] == "federation-upstream"}
    assert set(links) == {"m2 brokerha.sync", "m2 brokerha.data"}
    uri = links["m2 brokerha.sync"]["uri"]
    # With the user that broker 2 has for broker 1; what only clients of brokerha understand is left out.
    password = passwords(plan)["link-m1"]
    assert uri == f"amqps://orders.link-m1:{password}@rabbit-2:5671/orders?heartbeat=5"
    hashed = {user["name"]: user["password_hash"] for user in two["users"]}["orders.link-m1"]
    assert fits(hashed, password)
    assert {file.path.stem for file in plan.files if file.path.suffix == ".url"} == {
        "m1", "w1", "app@m1", "m2", "w2", "app@m2", "link-m1", "link-m2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("web=reader", "there is no role 'reader': write write, follow, monitor, admin"),
        ("m1", "that no node and no queue of brokerha has"),
        ("writes", "that no node and no queue of brokerha has"),
        ("link-m1", "that no node and no queue of brokerha has"),
        ("We b", "of a-z, 0-9 and -"),
    ],
)
def test_an_app_that_cannot_be_is_refused(tmp_path: Path, app: str, said: str):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        made(ONE_SITE, tmp_path, apps=(app,))


def test_an_app_may_have_several_roles(tmp_path: Path):
    there = made(ONE_SITE, tmp_path, apps=("web=write+follow",))[1]["definitions.json"]
    row = next(row for row in there["permissions"] if row["user"] == "orders.web")
    assert re.match(row["write"], "brokerha.writes")
    assert re.match(row["configure"], "orders.web.prices")
    assert not re.match(row["configure"], "brokerha.writes")
    assert [policy["pattern"] for policy in there["policies"]] == [r"^orders\.web\."]


def test_one_process_has_no_broker(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="which has no broker"):
        made(EMBEDDED, tmp_path)


RABBITMQCTL = """\
#!/bin/sh
cd /
cat ${2:+"$2"} > "$SEEN"
"""
"""What Debian's does first: it goes to another folder, and becomes a user who can open no file of ours."""


def test_the_import_works_as_it_is_printed_with_a_rabbitmqctl_that_leaves_the_folder(tmp_path: Path):
    config, folder = cluster(ONE_SITE, tmp_path), tmp_path / "deploy"
    plan = definitions_plan(config, broker.parse_apps((), config), {}, Path("deploy"), folder / "secrets")
    write(plan, folder, force=False)
    program = tmp_path / "bin" / "rabbitmqctl"
    program.parent.mkdir()
    program.write_text(RABBITMQCTL)
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "SEEN": str(tmp_path / "seen")}
    line = next(step for step in plan.next_steps if "import_definitions" in step)
    subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, check=True)
    assert (tmp_path / "seen").read_text() == (folder / "definitions.json").read_text()
