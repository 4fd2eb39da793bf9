"""TLS: contexts made from files that may change while we serve, and the name in a certificate.

A context can't change under a connection that uses it, so a reload makes a new one: connections
that come from then on get it, older ones keep theirs. Files that can't be used (half written, a
key that isn't the certificate's) leave the old one in force and a line in the log.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trio

from ottermq import eventlog
from ottermq.config.schema import TlsSettings
from ottermq.errors import ConfigError

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
VERIFY = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
# RabbitMQ's short names of a subject's attributes; the rest keep OpenSSL's names.
SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "pseudonym": "PSEUDONYM",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "surname": "SN",
    "title": "TITLE",
    "userId": "UID",
}

Stamp = tuple[tuple[int, int, int] | None, ...]


class Contexts:
    """`current` is what the next connection gets."""

    def __init__(self, settings: TlsSettings) -> None:
        """ConfigError: the files can't be used."""
        self.settings = settings
        self._stamp = self._look()
        try:
            self.current = make_context(settings)
        except (OSError, ValueError) as error:
            raise ConfigError(_told(settings, error)) from None

    async def keep(self) -> None:
        """Read the files again when they change, until cancelled."""
        while True:
            await trio.sleep(self.settings.check_interval.total_seconds())
            if await trio.to_thread.run_sync(self._look) != self._stamp:
                await self.reload()

    async def reload(self, settings: TlsSettings | None = None) -> bool:
        """Whether the files have changed or not; settings: by these from now on. False: the old
        context stays, and the old settings."""
        settings = settings or self.settings
        # The stamp comes first: what changes while we read is seen at the next look.
        stamp = await trio.to_thread.run_sync(self._look)
        try:
            current = await trio.to_thread.run_sync(make_context, settings)
        except (OSError, ValueError) as error:
            self._stamp = stamp
            eventlog.warning("tls files not loaded", reason=_told(settings, error))
            return False
        if settings != self.settings:
            self.settings = settings
            stamp = await trio.to_thread.run_sync(self._look)
        self._stamp, self.current = stamp, current
        eventlog.info("tls files loaded", cert=settings.cert)
        return True

    def _look(self) -> Stamp:
        return tuple(_stamp(file) for file in _files(self.settings).values())


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[settings.min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if settings.cert is None:
        raise ValueError("there is no certificate")
    # Without a callback OpenSSL would ask for the key's passphrase on the terminal.
    context.load_cert_chain(settings.cert, settings.key, password=_no_passphrase)
    context.verify_mode = VERIFY[settings.verify]
    if settings.ca is not None:
        context.load_verify_locations(settings.ca)
    return context


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


def _files(settings: TlsSettings) -> dict[str, Path]:
    """By the keys that name them."""
    files = {"tls.cert": settings.cert, "tls.key": settings.key, "tls.ca": settings.ca}
    return {key: file for key, file in files.items() if file is not None}


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _told(settings: TlsSettings, error: Exception) -> str:
    """OpenSSL's errors name no file; one that can't be opened is the more likely cause."""
    files = _files(settings)
    for key, file in files.items():
        try:
            with open(file, "rb"):
                pass
        except OSError as unreadable:
            return f"{key} = {file}: {unreadable.strerror}"
    reason = getattr(error, "reason", None) or error
    names = ", ".join(f"{key} = {file}" for key, file in files.items())
    return f"{names}: {str(reason).replace('_', ' ').lower()}"


# -- the user that a certificate names


def name_of(certificate: Mapping[str, Any] | None, login_from: str) -> str | None:
    """The user that EXTERNAL logs in: SSLSocket.getpeercert() to a name.

    None when there is no certificate, or nothing in it to go by.
    """
    subject = (certificate or {}).get("subject", ())
    return _NAMES[login_from](subject) or None


def _common_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    return ",".join(value for rdn in subject for key, value in rdn if key == "commonName")


def _distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """As RFC 4514 writes it, and RabbitMQ: the last part first."""
    return ",".join(
        "+".join(f"{SHORT.get(key, key)}={_escaped(value)}" for key, value in rdn)
        for rdn in reversed(subject)
    )


_NAMES: dict[str, Callable[[Any], str]] = {
    "common_name": _common_name,
    "distinguished_name": _distinguished_name,
}


def _escaped(value: str) -> str:
    text = "".join("\\" + char if char in ',+"\\<>;' else char for char in value)
    text = "".join(f"\\{ord(char):02X}" if char < " " else char for char in text)
    if text[:1] in ("#", " "):
        text = "\\" + text
    if len(value) > 1 and text.endswith(" "):
        text = text[:-1] + "\\ "
    return text
