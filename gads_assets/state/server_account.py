"""Whom the embedded PostgreSQL runs as: the caller, or an unprivileged account when that is root, which it refuses."""

import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gads_assets.errors import SetupError

_ROOT_GROUP = 0


@dataclass(frozen=True, kw_only=True)
class ServerAccount:
    """What subprocess needs to start the server; None means as the caller is."""

    user: int | None = None
    group: int | None = None
    extra_groups: tuple[int, ...] | None = None

    def own(self, folder: Path) -> None:
        if self.user is not None:
            os.chown(folder, self.user, _ROOT_GROUP)


def server_account(*places: Path) -> ServerAccount:
    """An account that can reach `places` (which must exist).

    As root it is `nobody` in root's group, so nothing is added to the machine and other daemons that run as nobody
    stay outside. A closed folder on the way (/root itself, often) is opened to its group for passing through only.
    """
    if os.geteuid() != 0:
        return ServerAccount()
    try:
        nobody = pwd.getpwnam("nobody").pw_uid
    except KeyError:
        raise SetupError(
            "PostgreSQL refuses to run as root and there is no account `nobody` to run it as; "
            "use a normal account, or set GADS_DATABASE_URL"
        ) from None
    groups = {group for place in places for group in _let_through(place)}
    return ServerAccount(user=nobody, group=_ROOT_GROUP, extra_groups=tuple(sorted(groups)))


def _let_through(place: Path) -> Iterable[int]:
    for folder in (place, *place.parents):
        status = folder.stat()
        if status.st_mode & stat.S_IXOTH:
            continue
        if not status.st_mode & stat.S_IXGRP:
            folder.chmod(stat.S_IMODE(status.st_mode) | stat.S_IXGRP)
        yield status.st_gid


def make_readable(installation: Path) -> None:
    """For root, whose umask may have closed the installed server to every other account."""
    if os.geteuid() != 0 or (installation / "bin" / "postgres").stat().st_mode & stat.S_IXOTH:
        return
    for path in (installation, *installation.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0))
