"""Lists: pages, filters, order, columns; and how answers are sent."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.api import Api
from tests.brokers import Broker

NAMES = [f"orders-{number:03}" for number in range(250)]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder: Path = tmp_path_factory.mktemp("listing")
    queues = [{"name": name, "vhost": "/", "durable": True} for name in NAMES]
    for number, queue in enumerate(queues):
        queue["arguments"] = {"x-max-length": 1000 - number}
    definitions = folder / "definitions.json"
    definitions.write_text(json.dumps({"queues": queues}))
    with Broker(folder / "data", "--definitions", str(definitions)) as broker:
        with Api(broker.address("admin")) as asked:
            yield asked


def test_a_list_is_whole_unless_a_page_is_asked_for(api: Api) -> None:
    assert [queue["name"] for queue in api.get("queues")] == NAMES
    assert len(api.get("queues?page_size=5")) == 250
    assert len(api.get("queues?name=orders-001")) == 250
    page = api.get("queues?page=1")
    counts = {key: value for key, value in page.items() if key != "items"}
    assert counts == {
        "page": 1,
        "page_size": 100,
        "page_count": 3,
        "item_count": 100,
        "filtered_count": 250,
        "total_count": 250,
    }
    assert [queue["name"] for queue in page["items"]] == NAMES[:100]
    last = api.get("queues?page=3&page_size=120")
    assert [queue["name"] for queue in last["items"]] == NAMES[240:]


def test_names_are_filtered_whatever_their_case(api: Api) -> None:
    def found(query: str) -> list[str]:
        return [each["name"] for each in api.get(f"queues?page=1&{query}")["items"]]

    assert found("name=ORDERS-24") == NAMES[240:]
    assert found("name=%5Eorders-24%5B12%5D%24&use_regex=true") == NAMES[241:243]
    assert found("name=ORDERS-%5Cd%5Cd7&use_regex=true&page_size=3") == NAMES[7:28:10]
    assert found("name=orders-24.") == []
    keda = api.get("queues/%2F?page=1&use_regex=true&pagination=false&name=24&page_size=5")
    assert (keda["page_count"], keda["filtered_count"]) == (3, 13)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("page=0", "invalid_pagination_parameters"),
        ("page=1&page_size=0", "invalid_pagination_parameters"),
        ("page=1&page_size=501", "invalid_pagination_parameters"),
        ("page=x", "bad_request"),
        ("page=-1", "bad_request"),
        ("page=1&page_size=9999999999999999999", "bad_request"),
        ("page=4", "page_out_of_range"),
        ("page=1&name=%28&use_regex=true", "bad_request"),
        ("page=1&name=(a%2B)%2B(?=b)&use_regex=true", "bad_request"),
    ],
)
def test_pages_that_can_t_be_are_refused(api: Api, query: str, error: str) -> None:
    reply = api.ask("GET", f"queues?{query}")
    assert (reply.status, reply.value["error"]) == (400, error)


def test_a_costly_pattern_takes_no_time(api: Api) -> None:
    hostile = "(a%7Ca%3F)%2B" * 10
    reply = api.ask("GET", f"queues?page=1&use_regex=true&name={hostile}!")
    assert reply.status in (200, 400)


def test_lists_are_sorted_by_any_figure(api: Api) -> None:
    by_limit = api.get("queues?page=1&sort=arguments.x-max-length&columns=name")
    assert by_limit["items"][0] == {"name": NAMES[-1]}
    backwards = api.get("queues?sort=name&sort_reverse=true&columns=name")
    assert [queue["name"] for queue in backwards] == NAMES[::-1]
    for unsorted in ("sort=", "sort=nope", "sort=message_stats.publish_details.rate"):
        assert len(api.get(f"queues?{unsorted}")) == 250


def test_columns_cut_lists_and_objects(api: Api) -> None:
    first = api.get("queues?columns=name,message_stats.publish,arguments.x-max-length,nope")[0]
    assert first == {
        "name": NAMES[0],
        "message_stats": {"publish": 0},
        "arguments": {"x-max-length": 1000},
    }
    assert api.get(f"queues/%2F/{NAMES[0]}?columns=vhost") == {"vhost": "/"}


def test_message_stats_are_never_absent(api: Api) -> None:
    for path in ("overview", f"queues/%2F/{NAMES[0]}", "exchanges/%2F/amq.topic"):
        assert isinstance(api.get(path)["message_stats"], dict)
    assert api.get("overview")["message_stats"]["publish_details"] == {"rate": 0.0}


def test_a_long_list_is_packed_for_those_who_can_unpack_it(api: Api) -> None:
    reply = api.ask("GET", "queues", headers={"Accept-Encoding": "gzip"})
    assert reply.headers["content-encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(reply.value))) == 250
    short = api.ask("GET", "whoami", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in short.headers


def test_bert_is_answered_as_json(api: Api) -> None:
    """As kbudde's exporter asks."""
    accept = {"Accept": "application/bert, application/json;q=0.1"}
    assert api.ask("GET", "overview?sort=", headers=accept).value["product_name"] == "OtterMQ"


def test_head_and_options_say_what_get_would(api: Api) -> None:
    got, headed = api.ask("GET", "whoami"), api.ask("HEAD", "whoami")
    assert (headed.status, headed.value) == (200, None)
    assert headed.headers["content-length"] == got.headers["content-length"]
    options = api.ask("OPTIONS", f"queues/%2F/{NAMES[0]}")
    assert options.headers["allow"] == "HEAD, GET, PUT, DELETE, OPTIONS"
    refused = api.ask("DELETE", "overview")
    assert (refused.status, refused.headers["allow"]) == (405, "HEAD, GET, OPTIONS")
