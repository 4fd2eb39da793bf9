"""SCRAM credentials of users, described and altered by Kafka's clients.

A client sends the salted password, never the password. It is the user's new password everywhere:
the old one is of no use any more, by PLAIN, AMQP or the other mechanism. PLAIN is checked against
the verifier that was sent; the other mechanism works from the first login by PLAIN on, or when its
verifier was sent, too. A user that doesn't exist yet is made, without any permission.
"""

from collections import Counter
from collections.abc import Iterable

from ottermq.auth import User, scram
from ottermq.errors import OtterError
from ottermq.kafka.api import Api
from ottermq.kafka.context import KafkaContext
from ottermq.kafka.errors import Error, KafkaError, error_of
from ottermq.kafka.request import Body, Handler, Request
from ottermq.wal import LogError

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
FEWEST, MOST = 4096, scram.MOST_ITERATIONS


def describe_user_scram_credentials(kafka: KafkaContext, request: Request) -> Body:
    _check_administrator(request)
    asked = request.body["users"]
    if not asked:
        users = [user for user in kafka.auth.users.all() if _infos(user)]
        return {
            "results": [{"user": each.name, "credential_infos": _infos(each)} for each in users]
        }
    names = Counter(each["name"] for each in asked)
    return {"results": [_described(kafka, name, times) for name, times in names.items()]}


def _check_administrator(request: Request) -> None:
    if not request.conn.is_administrator:
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, "for administrators")


def _infos(user: User) -> list[Body]:
    found = ((number, user.secrets.verifier(name)) for number, name in MECHANISMS.items())
    return [
        {"mechanism": number, "iterations": verifier.iterations}
        for number, verifier in found
        if verifier is not None
    ]


def _described(kafka: KafkaContext, name: str, times: int) -> Body:
    user = kafka.auth.users.get(name)
    infos = _infos(user) if user else []
    if times > 1:
        error, text = Error.DUPLICATE_RESOURCE, f"user '{name}' is named more than once"
    elif not infos:
        error, text = Error.RESOURCE_NOT_FOUND, f"user '{name}' has no SCRAM credentials"
    else:
        return {"user": name, "credential_infos": infos}
    return {"user": name, "error_code": error, "error_message": text}


async def alter_user_scram_credentials(kafka: KafkaContext, request: Request) -> Body:
    deletions, upsertions = request.body["deletions"], request.body["upsertions"]
    names = dict.fromkeys(each["name"] for each in (*deletions, *upsertions))
    if not request.conn.is_administrator:
        refused = KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, "for administrators")
        for name in names:
            request.audit("scram.set", name, refused)
        return {"results": [_refused(name, refused) for name in names]}
    twice = _twice((each["name"], each["mechanism"]) for each in (*deletions, *upsertions))
    wrong: dict[str, Exception] = {}
    for name in names:
        if any(name == each for each, _ in twice):
            text = f"user '{name}' has a mechanism more than once"
            wrong[name] = KafkaError(Error.DUPLICATE_RESOURCE, text)
    for name in names:
        if name not in wrong:
            try:
                await _alter(kafka, name, _of(upsertions, name), _of(deletions, name))
            except (KafkaError, OtterError, LogError) as error:
                wrong[name] = error
        act = "scram.set" if _of(upsertions, name) else "scram.delete"
        request.audit(act, name, wrong.get(name))
    return {
        "results": [
            _refused(name, wrong[name]) if name in wrong else {"user": name} for name in names
        ]
    }


def _twice(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return [pair for pair, times in Counter(pairs).items() if times > 1]


def _refused(name: str, error: Exception) -> Body:
    return {"user": name, "error_code": error_of(error), "error_message": _text(error)}


def _text(error: Exception) -> str:
    return (error.text or error.error.name) if isinstance(error, KafkaError) else str(error)


def _verifier(asked: Body) -> scram.Verifier:
    if not FEWEST <= asked["iterations"] <= MOST:
        raise KafkaError(
            Error.UNACCEPTABLE_CREDENTIAL, f"iterations must be between {FEWEST} and {MOST}"
        )
    mechanism = MECHANISMS[asked["mechanism"]]
    if not asked["salt"] or not asked["salted_password"]:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "a salt and a salted password are needed")
    return scram.from_salted(
        mechanism, asked["salted_password"], asked["salt"], asked["iterations"]
    )


async def _alter(kafka: KafkaContext, name: str, new: list[Body], gone: list[Body]) -> None:
    """All that is asked for one user, or nothing of it."""
    if not name:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "a user needs a name")
    for each in (*new, *gone):
        if each["mechanism"] not in MECHANISMS:
            raise KafkaError(Error.UNSUPPORTED_SASL_MECHANISM, f"no mechanism {each['mechanism']}")
    wanted: dict[str, scram.Verifier | None] = {}
    for each in gone:
        mechanism = MECHANISMS[each["mechanism"]]
        if not _has(kafka, name, mechanism):
            raise KafkaError(Error.RESOURCE_NOT_FOUND, f"user '{name}' has no {mechanism}")
        wanted[mechanism] = None
    for each in new:
        wanted[MECHANISMS[each["mechanism"]]] = _verifier(each)
    await kafka.auth.users.set_verifiers(name, wanted)


def _of(asked: Iterable[Body], name: str) -> list[Body]:
    return [each for each in asked if each["name"] == name]


def _has(kafka: KafkaContext, name: str, mechanism: str) -> bool:
    user = kafka.auth.users.get(name)
    return user is not None and user.secrets.verifier(mechanism) is not None


HANDLERS: dict[Api, Handler] = {
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    Api.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
}
