"""Health checks, and what a monitor reads first."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from tests.admin.api import Api
from tests.brokers import Broker

PROBES = [
    "alarms",
    "local-alarms",
    "virtual-hosts",
    "node-is-quorum-critical",
    "node-is-mirror-sync-critical",
    "quorum-queues-without-elected-leaders/all-vhosts",
    "quorum-queues-without-elected-leaders/vhost/%2F",
    "metadata-store/initialized",
    "metadata-store/initialized/with-data",
    "reached-target-cluster-size",
    "is-in-service",
    "ready-to-serve-clients",
    "below-node-connection-limit",
    "certificate-expiration/1/months",
    "protocol-listener/amqp",
    "protocol-listener/amqp,kafka,http",
]


@pytest.mark.parametrize("probe", PROBES)
def test_a_well_broker_passes(api: Api, probe: str) -> None:
    assert api.get(f"health/checks/{probe}")["status"] == "ok"


def test_listeners_are_told_by_port_and_protocol(shared: Broker, api: Api) -> None:
    port = shared.address("amqp")[1]
    assert api.get(f"health/checks/port-listener/{port}") == {"status": "ok", "port": port}
    missing = api.ask("GET", "health/checks/port-listener/1")
    assert missing.status == 503
    assert missing.value["missing"] == 1 and port in missing.value["ports"]
    missing = api.ask("GET", "health/checks/protocol-listener/amqp,mqtt")
    assert (missing.status, missing.value["missing"]) == (503, ["mqtt"])
    told = {each["protocol"]: each["port"] for each in api.get("overview")["listeners"]}
    assert told["amqp"] == port and set(told) == {"amqp", "kafka", "http"}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder: Path = tmp_path_factory.mktemp("secure")
    end = datetime.now(UTC) + timedelta(days=10)
    leaf = trustme.CA().issue_cert("localhost", not_after=end)
    leaf.private_key_pem.write_to_path(str(folder / "key.pem"))
    leaf.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    env = {
        "OTTERMQ_LISTEN__AMQPS": "127.0.0.1:0",
        "OTTERMQ_TLS__CERT": str(folder / "cert.pem"),
        "OTTERMQ_TLS__KEY": str(folder / "key.pem"),
    }
    with Broker(folder / "data", env=env) as broker, Api(broker.address("admin")) as api:
        yield api


@pytest.mark.parametrize(
    ("when", "status"),
    [("9/days", 200), ("1/week", 200), ("11/days", 503), ("2/weeks", 503), ("1/years", 503)],
)
def test_a_certificate_is_missed_before_it_ends(secure: Api, when: str, status: int) -> None:
    reply = secure.ask("GET", f"health/checks/certificate-expiration/{when}")
    assert reply.status == status
    if status == 503:
        (expired,) = reply.value["expired"]
        assert expired["protocol"] == "amqp/ssl" and expired["certfile"].endswith("cert.pem")


def test_the_overview_has_what_monitors_ask_for(api: Api) -> None:
    found = api.get("overview")
    for key in ("message_stats", "queue_totals", "object_totals", "churn_rates", "listeners"):
        assert found[key], key
    assert found["rabbitmq_version"] == "4.1.0" and found["product_name"] == "OtterMQ"
    assert "@" in found["node"]
    (node,) = api.get("nodes")
    assert node == {**api.get(f"nodes/{node['name']}"), **node}
    assert node["running"] and node["mem_used"] > 1 << 20 and node["disk_free"] > 0
    assert api.ask("GET", "nodes/nobody@nowhere").status == 404
    assert api.get(f"nodes/{node['name']}/memory") == {"memory": "not_available"}


def test_the_version_for_tools_is_a_setting(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", env={"OTTERMQ_ADMIN__RABBITMQ_VERSION": "3.13.7"}) as broker:
        with Api(broker.address("admin")) as api:
            assert api.get("overview")["rabbitmq_version"] == "3.13.7"
            assert api.get("definitions")["rabbitmq_version"] == "3.13.7"


def test_flags_that_libraries_look_for_are_on(api: Api) -> None:
    flags = {flag["name"]: flag["state"] for flag in api.get("feature-flags")}
    assert flags["quorum_queue"] == flags["stream_queue"] == "enabled"
    assert api.put("feature-flags/quorum_queue/enable") == 204
    assert api.put("feature-flags/nope/enable") == 400


@pytest.mark.parametrize("path", ["federation-links", "shovels", "stream/publishers"])
def test_what_isn_t_here_is_an_empty_list(api: Api, path: str) -> None:
    assert api.get(path) == api.get(f"{path}/%2F") == []


def test_the_cluster_has_a_name(api: Api) -> None:
    assert api.put("cluster-name", {"name": "otters"}) == 204
    assert api.get("cluster-name") == {"name": "otters"}
    assert api.get("overview")["cluster_name"] == "otters"
    assert api.delete("global-parameters/cluster_name") == 204
    assert "@" in api.get("cluster-name")["name"]
