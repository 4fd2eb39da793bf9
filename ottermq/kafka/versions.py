"""ApiVersions: the APIs we speak, and their versions. A client's first request.

The answer lists Produce from version 0 on, more than we quite do: older librdkafka takes a broker
that lacks it for one that can't compress. A client with a version of ApiVersions that we don't know
is answered in version 0, which all can read.
"""

from functools import cache

from ottermq.kafka import codec
from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error
from ottermq.kafka.request import Body, Handler, Request
from ottermq.kafka.schema import MESSAGES

ADVERTISED_FROM = {Api.PRODUCE: 0}
OURS = MESSAGES[Api.API_VERSIONS]


def api_versions(kafka: KafkaContext, request: Request) -> bytes:
    name, version = request.body["client_software_name"], request.body["client_software_version"]
    request.conn.software = f"{name} {version}".strip()
    return _encoded(request.version, kafka.served)


@cache
def _encoded(version: int, served: frozenset[Api]) -> bytes:
    return codec.encode_body(Api.API_VERSIONS, version, {"api_keys": _ranges(served)})


def unsupported(correlation: int) -> bytes:
    """The answer to a version of ApiVersions that we don't know: ask again in one that we do."""
    body: Body = {
        "error_code": Error.UNSUPPORTED_VERSION,
        "api_keys": _ranges(frozenset({Api.API_VERSIONS})),
    }
    return codec.encode_answer(Api.API_VERSIONS, 0, correlation, body)


def _ranges(served: frozenset[Api]) -> list[Body]:
    return [
        {
            "api_key": api,
            "min_version": ADVERTISED_FROM.get(api, MESSAGES[api].versions[0]),
            "max_version": MESSAGES[api].versions[1],
        }
        for api in sorted(served)
    ]


HANDLERS: dict[Api, Handler] = {Api.API_VERSIONS: api_versions}
