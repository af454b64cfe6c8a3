"""Is a path on a network drive? SQLite's locks and shared memory are not to be trusted there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path, PurePath

NETWORK_TYPES = frozenset(
    {
        "9p",
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb3",
        "smbfs",
        "webdav",
    }
)
_BSD_LINE = re.compile(r"^.* on (?P<point>/.*) \((?P<type>[^,()]+)[^()]*\)$")
_DRIVE_REMOTE = 4  # what Windows answers for a mapped network drive


def network_type(mount_table: str, path: PurePath) -> str | None:
    """The network file system that holds ``path``, or None if it is local.

    Args:
        mount_table: the text of Linux's ``/proc/mounts``, or what ``mount`` prints on macOS.
        path: absolute, symbolic links resolved. A UNC path (``//server/share``) is always remote.
    """
    if path.as_posix().startswith("//"):
        return "unc"
    best, kind = -1, ""
    for line in mount_table.splitlines():
        mount = _parse(line)
        if mount is None:
            continue
        point, found = mount
        depth = len(PurePath(point).parts)
        if path.is_relative_to(point) and depth >= best:  # a later mount on the same point hides the earlier
            best, kind = depth, found
    return kind if kind in NETWORK_TYPES else None


def network_type_of(path: Path) -> str | None:
    """:func:`network_type` by this machine's mount table."""
    path = path.resolve()
    if sys.platform == "win32":
        import ctypes

        mapped = ctypes.windll.kernel32.GetDriveTypeW(path.anchor) == _DRIVE_REMOTE
        return "mapped" if mapped else network_type("", path)
    table = Path("/proc/mounts")
    if table.exists():
        return network_type(table.read_text(encoding="utf-8", errors="surrogateescape"), path)
    return network_type(subprocess.run(["mount"], capture_output=True, text=True, check=False).stdout, path)


def _parse(line: str) -> tuple[str, str] | None:
    """(mount point, type) of one line of either table."""
    if found := _BSD_LINE.match(line):
        return found["point"], found["type"]
    fields = line.split(" ")
    if len(fields) < 3 or not fields[1].startswith("/"):
        return None
    point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1])  # "\040" is a space
    return point, fields[2]
