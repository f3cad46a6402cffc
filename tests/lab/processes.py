"""What other processes do, as /proc tells it: who lives in a session, and where they listen."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from collections.abc import Iterable
from pathlib import Path


def members(session: int) -> list[int]:
    """The processes of a session that live."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found.append(int(folder.name))
    return found


def listening(pids: Iterable[int]) -> set[tuple[str, int]]:
    """The addresses and ports on which processes accept connections."""
    sockets = {inode for pid in pids for inode in _sockets(pid)}
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                address, _, port = fields[1].partition(":")
                found.add((_address(address), int(port, 16)))
    return found


def _sockets(pid: int) -> set[str]:
    """The inodes of the sockets that a process has open."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(entry)
                if target.startswith("socket:["):
                    found.add(target[len("socket:[") : -1])
    return found


def _address(text: str) -> str:
    """An address as /proc/net writes it: words of four bytes in the order of this machine."""
    words = [bytes.fromhex(text[start : start + 8]) for start in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)))
