"""Users: made, changed, deleted, and let in or not."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from pamqp import encode

from ottermq.auth import Auth, Change, Permission, User, passwords
from ottermq.auth.database import Statement
from ottermq.auth.password_cache import PasswordCache
from ottermq.auth.passwords import Stored
from ottermq.errors import InvalidRequest, LoginRefused, NotFound, codes_of
from ottermq.wal.errors import NoSpace
from tests.auth.auth_harness import Memory, new_auth, plain, rabbit_hash

HERE, THERE = "127.0.0.1", "192.0.2.1"


class Hashing:
    """Counts the checks that went as far as hashing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checks = 0
        matches = Stored.matches

        def counted(stored: Stored, password: bytes) -> bool:
            self.checks += 1
            return matches(stored, password)

        monkeypatch.setattr(Stored, "matches", counted)


async def refused(auth: Auth, response: bytes, peer: str = HERE) -> str:
    """The reason that the log is told."""
    with pytest.raises(LoginRefused) as caught:
        await auth.users.authenticate("PLAIN", response, peer)
    assert codes_of(caught.value).amqp == 403
    assert str(caught.value) == (
        "Login was refused using authentication mechanism PLAIN."
        " For details see the broker logfile."
    )
    return caught.value.reason


# -- the first start


async def test_the_first_start_makes_guest_an_administrator() -> None:
    auth = new_auth()
    await auth.first_start()
    guest = await auth.users.authenticate("PLAIN", plain("guest", "guest"), HERE)
    assert guest.name == "guest" and guest.is_administrator
    assert auth.permissions.entries() == [Permission("guest", "/", ".*", ".*", ".*")]


async def test_guest_comes_in_from_this_machine_only() -> None:
    auth = new_auth()
    await auth.first_start()
    for peer in (HERE, "::1", "::ffff:127.0.0.1"):
        await auth.users.authenticate("PLAIN", plain("guest", "guest"), peer)
    for peer in (THERE, "2001:db8::1", ""):
        reason = await refused(auth, plain("guest", "guest"), peer)
        assert reason == "user 'guest' can only connect via localhost"


async def test_guest_is_not_made_again_after_it_was_deleted() -> None:
    disk = Memory()
    auth = new_auth(disk)
    await auth.first_start()
    await auth.delete_user("guest")
    again = new_auth(disk)
    await again.first_start()
    assert again.users.all() == []


async def test_guest_is_not_made_where_definitions_brought_users() -> None:
    auth = new_auth()
    await auth.users.put_hashed("ops", rabbit_hash("x"), None, ["administrator"])
    await auth.first_start()
    assert [user.name for user in auth.users.all()] == ["ops"]


# -- logging in


async def test_a_user_comes_in_with_its_password_by_plain_and_amqplain() -> None:
    auth = new_auth()
    await auth.users.put("ann", "geheim", ["management"])
    table = encode.field_table({"LOGIN": "ann", "PASSWORD": "geheim"})[4:]
    for mechanism, response in (("PLAIN", plain("ann", "geheim")), ("AMQPLAIN", table)):
        user = await auth.users.authenticate(mechanism, response, THERE)
        assert user.name == "ann" and user.tags == ("management",)
        assert not user.is_administrator


async def test_a_wrong_password_and_a_user_nobody_knows_are_refused_alike(
    caplog: pytest.LogCaptureFixture,
) -> None:
    auth = new_auth()
    await auth.users.put("ann", "geheim")
    assert await refused(auth, plain("ann", "wrong")) == "user 'ann' - invalid credentials"
    assert await refused(auth, plain("eve", "wrong")) == "user 'eve' - invalid credentials"
    assert await refused(auth, plain("ann", "")) == "user 'ann' - invalid credentials"
    assert "login refused peer=127.0.0.1 mechanism=PLAIN" in caplog.text
    assert "wrong" not in caplog.text


async def test_whoever_is_asked_for_costs_the_same_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time an answer takes would tell which names exist."""
    auth = new_auth()
    await auth.users.put("no password")
    await auth.users.put_hashed("imported", rabbit_hash("geheim"), None, [])
    scrypts = []
    scrypt = passwords._scrypt

    def counted(password: bytes, *more: Any) -> bytes:
        scrypts.append(password)
        return scrypt(password, *more)

    monkeypatch.setattr(passwords, "_scrypt", counted)
    for name in ("eve", "no password", "imported"):
        await refused(auth, plain(name, "x"))
    assert len(scrypts) == 3


async def test_a_full_disk_keeps_nobody_out_whose_hash_was_imported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full(Memory):
        full = False

        async def commit(self, statements: Sequence[Statement]) -> None:
            if self.full:
                raise NoSpace("no space left on device")
            await super().commit(statements)

    disk = Full()
    auth = new_auth(disk)
    await auth.users.put_hashed("ann", rabbit_hash("geheim"), None, [])
    disk.full = True
    user = await auth.users.authenticate("PLAIN", plain("ann", "geheim"), HERE)
    assert not user.secrets.stored.is_current
    assert "password hash not upgraded user=ann" in caplog.text
    disk.full = False
    user = await auth.users.authenticate("PLAIN", plain("ann", "geheim"), HERE)
    assert user.secrets.stored.is_current


async def test_external_needs_a_user_and_no_password() -> None:
    auth = new_auth()
    await auth.users.put("CN=client,O=Otters")
    name = "CN=client,O=Otters"
    user = await auth.users.authenticate("EXTERNAL", b"", THERE, name)
    assert user.name == name
    await refused(auth, plain(name, "x"))
    with pytest.raises(LoginRefused, match="mechanism EXTERNAL"):
        await auth.users.authenticate("EXTERNAL", b"", THERE, "CN=other")
    with pytest.raises(LoginRefused, match="mechanism EXTERNAL"):
        await auth.users.authenticate("EXTERNAL", b"", THERE, None)


async def test_a_password_seen_once_is_hashed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = new_auth()
    await auth.users.put("ann", "geheim")
    hashing = Hashing(monkeypatch)
    for _ in range(100):
        await auth.users.authenticate("PLAIN", plain("ann", "geheim"), HERE)
    assert hashing.checks == 1
    await refused(auth, plain("ann", "wrong"))
    assert hashing.checks == 2


async def test_hundreds_that_come_at_once_cost_few_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = new_auth()
    await auth.users.put("ann", "geheim")
    hashing = Hashing(monkeypatch)
    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(auth.users.authenticate, "PLAIN", plain("ann", "geheim"), HERE)
    assert hashing.checks <= auth.users._verified.places.total


async def test_a_remembered_password_is_not_kept_as_it_is() -> None:
    verified = PasswordCache()
    stored = passwords.make(b"geheim")
    assert await verified.check("ann", stored, b"geheim")
    assert verified.is_known("ann", stored, b"geheim")
    assert not verified.is_known("ann", stored, b"other")
    assert not verified.is_known("ann", passwords.make(b"geheim"), b"geheim")
    assert b"geheim" not in repr(verified._known).encode()
    assert not PasswordCache().is_known("ann", stored, b"geheim")


# -- changing passwords


async def test_a_changed_password_counts_at_once_and_the_old_one_no_more() -> None:
    auth = new_auth()
    await auth.users.put("ann", "old")
    await auth.users.authenticate("PLAIN", plain("ann", "old"), HERE)
    await auth.users.put("ann", "new")
    await refused(auth, plain("ann", "old"))
    await auth.users.authenticate("PLAIN", plain("ann", "new"), HERE)


async def test_the_same_password_set_again_is_no_change() -> None:
    """A definitions file with passwords, loaded at each start, closes nobody's connection."""
    disk = Memory()
    auth = new_auth(disk)
    user = await auth.users.put("ann", "geheim", ["management"])
    await auth.users.put_hashed("bob", rabbit_hash("geheim"), None, [])
    told: list[Change] = []
    auth.on_change(told.append)
    assert await auth.users.put("ann", "geheim", ["management"]) == user
    bob = await auth.users.put("bob", "geheim")
    assert bob.secrets.stored.is_current and bob == new_auth(disk).users.get("bob")
    assert told == []


async def test_a_password_that_changes_during_its_check_lets_nobody_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    auth = new_auth()
    await auth.users.put("ann", "old")
    new = await auth.users._verified.make(b"new")
    check = auth.users._verified.check

    async def meanwhile(user: str, stored: Stored | None, password: bytes, *more: Any) -> bool:
        right = await check(user, stored, password, *more)
        await auth.users._put("ann", new, None)
        return right

    monkeypatch.setattr(auth.users._verified, "check", meanwhile)
    await refused(auth, plain("ann", "old"))


async def test_a_cleared_password_lets_nobody_in() -> None:
    auth = new_auth()
    await auth.users.put("ann", "geheim")
    await auth.users.clear_password("ann")
    await refused(auth, plain("ann", "geheim"))
    await refused(auth, plain("ann", ""))
    assert (await auth.users.authenticate("EXTERNAL", b"", HERE, "ann")).name == "ann"


@pytest.mark.parametrize("password", ["", "a\0b"])
async def test_a_password_that_nobody_could_send_is_refused(password: str) -> None:
    auth = new_auth()
    with pytest.raises(InvalidRequest):
        await auth.users.put("ann", password)
    assert auth.users.get("ann") is None


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b"])
async def test_a_name_that_nobody_could_send_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        await new_auth().users.put(name, "x")


async def test_a_scram_verifier_is_kept_with_each_password_that_is_set() -> None:
    disk = Memory()
    auth = new_auth(disk)
    user = await auth.users.put("ann", "geheim")
    assert user.secrets.scram_sha_256 and user.secrets.scram_sha_512
    assert new_auth(disk).users.existing("ann") == user


# -- imported hashes


@pytest.mark.parametrize("algorithm", sorted(passwords.RABBIT))
async def test_an_imported_hash_is_upgraded_at_the_first_login(algorithm: str) -> None:
    disk = Memory()
    auth = new_auth(disk)
    told: list[Change] = []
    await auth.users.put_hashed("ann", rabbit_hash("geheim", algorithm), algorithm, [])
    auth.on_change(told.append)
    await refused(auth, plain("ann", "wrong"))
    assert not auth.users.existing("ann").secrets.stored.is_current
    user = await auth.users.authenticate("PLAIN", plain("ann", "geheim"), HERE)
    assert user.secrets.stored.is_current and user.secrets.scram_sha_256
    assert user == auth.users.get("ann") == new_auth(disk).users.get("ann")
    await auth.users.authenticate("PLAIN", plain("ann", "geheim"), HERE)
    await refused(auth, plain("ann", "wrong"))
    assert told == []


async def test_many_first_logins_at_once_upgrade_once() -> None:
    disk = Memory()
    auth = new_auth(disk)
    await auth.users.put_hashed("ann", rabbit_hash("geheim"), None, [])
    before = disk.commits
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(auth.users.authenticate, "PLAIN", plain("ann", "geheim"), HERE)
    assert disk.commits == before + 1


async def test_the_same_definitions_at_the_next_start_change_nothing() -> None:
    disk = Memory()
    auth = new_auth(disk)
    hash = rabbit_hash("geheim")
    await auth.users.put_hashed("ann", hash, None, ["management"])
    upgraded = await auth.users.authenticate("PLAIN", plain("ann", "geheim"), HERE)
    again = new_auth(disk)
    told: list[Change] = []
    again.on_change(told.append)
    await again.users.put_hashed("ann", hash, None, ["management"])
    assert again.users.get("ann") == upgraded and told == []


async def test_other_definitions_at_the_next_start_are_a_new_password() -> None:
    disk = Memory()
    auth = new_auth(disk)
    await auth.users.put_hashed("ann", rabbit_hash("geheim"), None, [])
    await auth.users.put("ann", "by hand")
    await auth.users.put_hashed("ann", rabbit_hash("geheim"), None, [])
    await refused(auth, plain("ann", "by hand"))
    await auth.users.authenticate("PLAIN", plain("ann", "geheim"), HERE)


# -- who is told


async def test_a_deleted_user_and_a_changed_password_close_connections() -> None:
    auth = new_auth()
    told: list[Change] = []
    auth.on_change(told.append)
    await auth.users.put("ann", "a")
    await auth.users.set_tags("ann", ["monitoring"])
    await auth.users.put("ann", "b")
    await auth.delete_user("ann")
    assert [change.user for change in told] == ["ann"] * 4
    assert [change.closing for change in told] == [
        None,
        None,
        "the password of user 'ann' was changed",
        "user 'ann' was deleted",
    ]


async def test_a_deleted_user_is_let_in_no_more() -> None:
    auth = new_auth()
    await auth.users.put("ann", "geheim")
    user = await auth.users.authenticate("PLAIN", plain("ann", "geheim"), HERE)
    await auth.delete_user("ann")
    await refused(auth, plain("ann", "geheim"))
    assert not auth.permissions.has_vhost(user, "/")
    for call in (auth.users.clear_password("ann"), auth.users.set_tags("ann", [])):
        with pytest.raises(NotFound):
            await call


# -- guessing


async def test_guessing_is_slow_for_that_user_and_address_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    auth = new_auth()
    await auth.users.put("ann", "geheim")
    await auth.users.put("bob", "geheim")
    for number in range(8):
        await refused(auth, plain("ann", f"{number}"), THERE)
    began = trio.current_time()
    await auth.users.authenticate("PLAIN", plain("ann", "geheim"), HERE)
    await auth.users.authenticate("PLAIN", plain("bob", "geheim"), THERE)
    assert trio.current_time() == began
    await auth.users.authenticate("PLAIN", plain("ann", "geheim"), THERE)
    assert trio.current_time() > began


async def test_guesses_side_by_side_are_refused_unheard(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    auth = new_auth()
    for _ in range(12):
        await refused(auth, plain("eve", "x"), THERE)
    hashing = Hashing(monkeypatch)
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(refused, auth, plain("eve", "x"), THERE)
    assert hashing.checks < 10


def test_no_password_is_shown_when_a_user_is_printed() -> None:

    assert "secrets" not in repr(User("ann"))
