"""Access to a cluster: TLS with the certificate that a scheduler requires, or with one made for a single run.

Dask unpickles and executes what it receives, so anyone who can connect can run code as the user. Both sides present a
certificate, and each accepts only those of its authority: without a key of that authority nobody can connect.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
import ssl
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from flipscope.basics.errors import InputError
from flipscope.basics.extra import imported

_FIELDS = {"ca": "tls_ca_file", "cert": "tls_client_cert", "key": "tls_client_key"}  # as Dask calls them


@dataclass(frozen=True)
class Tls:
    """Files in PEM format: a scheduler's authority, our certificate, its key; missing ones come from Dask's files."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def given(self) -> dict[str, str]:
        """The given files by option."""
        return {name: value for name in _FIELDS if (value := getattr(self, name)) is not None}


def security_for(address: str, tls: Tls) -> Any:
    """Dask's security settings for the scheduler of an address: None, or checked certificates."""
    scheme = _scheme(address)
    if scheme not in ("tcp", "tls", "inproc"):
        raise InputError(f"--cluster {address} must begin with tls:// or tcp://, such as tls://node1:8786")
    given = tls.given()
    if scheme != "tls" and given:
        raise InputError(f"--tls-{next(iter(given))} is for an address tls://..., and --cluster is {address}")
    security = imported("distributed").Security
    if scheme != "tls":
        if scheme == "tcp" and security().require_encryption:
            raise InputError(f"Dask's files here require encryption: --cluster must be tls://..., not {address}")
        return None
    chosen = security(require_encryption=True, **{_FIELDS[name]: os.path.abspath(path) for name, path in given.items()})
    _check_files(address, {name: getattr(chosen, field) for name, field in _FIELDS.items()})
    return chosen


def _scheme(address: str) -> str:
    return address.rpartition("://")[0] or "tcp"


def _check_files(address: str, files: dict[str, str | None]) -> None:
    """Whether there is a certificate of ours, its key, and an authority."""
    for name, path in files.items():
        if path is not None:
            _check_readable(name, path)
        elif name != "key":  # the key may be in the file of the certificate
            raise InputError(f"--cluster {address} needs --tls-ca, --tls-cert and --tls-key: --tls-{name} is missing")
    ca, cert, key = files["ca"], files["cert"], files["key"] or files["cert"]
    assert cert is not None

    def ask() -> NoReturn:
        raise InputError(f"--tls-key {key} is locked by a passphrase, which Dask cannot ask for: give one without")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise InputError(f"--tls-ca {ca} holds no certificate in PEM format: give that of the authority") from error
    try:
        context.load_cert_chain(cert, key, password=ask)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            said = f"--tls-key {key} does not belong to the certificate --tls-cert {cert}: give its own key"
        else:
            said = f"--tls-cert {cert} and --tls-key {key} are not a certificate and its key in PEM format: fix them"
        raise InputError(said) from error


def _check_readable(name: str, path: str) -> None:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe, which can be read once only, or never
            raise InputError(f"--tls-{name} {path} is not a file: give one in PEM format")
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        raise InputError(f"--tls-{name} {path} cannot be read: {error.strerror}") from error


def why_refused(address: str, security: Any, error: Exception) -> str:
    """One sentence on why there is no connection to the scheduler of an address, after an error of Dask."""
    if security is not None:
        reason = " ".join(str(error).split())[:200]
        return (
            f"no Dask scheduler at {address} answers with these certificates ({reason}): start one with dask "
            "scheduler, correct --cluster, or give with --tls-ca, --tls-cert and --tls-key those of its authority"
        )
    # A server of another protocol closes the connection, or seems to announce an endless message.
    if isinstance(error, MemoryError | imported("distributed.comm").CommClosedError):
        return f"the server at {address} is not a Dask scheduler, or requires tls://: correct --cluster"
    return f"no Dask scheduler answers at {address}: start one with dask scheduler, or correct --cluster"


def warn_of_strangers(address: str) -> None:
    """Warn that a scheduler that others can reach executes whatever anybody sends."""
    if _scheme(address) != "tcp":  # inproc: it is in this process, and nobody else can reach it
        return
    host = address.rpartition("://")[2].rpartition(":")[0].strip("[]")
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        found = set()
    if not found or not all(ipaddress.ip_address(one).is_loopback for one in found):
        logging.getLogger("flipscope").warning(
            "the scheduler at %s lets in anybody who can reach it, and who is let in can run code as you: "
            "use one with tls:// on a network that you share",
            address,
        )


@contextlib.contextmanager
def credentials(shared: Path) -> Iterator[Any]:
    """A certificate and key for one run, in files that only this user can read, removed at the end."""
    security = imported("distributed").Security
    try:
        made = security.temporary()
    except ImportError:
        raise InputError("--slurm needs the package cryptography: pip install 'flipscope[cluster]'") from None
    with contextlib.ExitStack() as opened:
        try:
            home = tempfile.TemporaryDirectory(prefix=".flipscope-", dir=shared, ignore_cleanup_errors=True)
            folder = Path(opened.enter_context(home))
            ca, cert, key = (_written(folder / f"{name}.pem", getattr(made, field)) for name, field in _FIELDS.items())
        except OSError as error:
            raise InputError(
                f"the certificate of the run cannot be written to {shared}: {error.strerror}; start from a folder that "
                "the jobs can read, or name one in Dask's files (jobqueue.slurm.shared-temp-directory)"
            ) from error
        yield security(
            require_encryption=True,
            tls_ca_file=ca,
            **{f"tls_{role}_cert": cert for role in ("client", "scheduler", "worker")},
            **{f"tls_{role}_key": key for role in ("client", "scheduler", "worker")},
        )


def _written(path: Path, text: str) -> str:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return str(path)
