"""Is a path on a drive of this machine? SQLite's locks are not to be trusted on others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path, PurePath

from understudy.ledger.whole_file import unescaped

VOUCHED = "UNDERSTUDY_LOCAL_DRIVES"
"""The environment variable with types, separated by commas, that the user says are local."""

PASSING = frozenset({"overlay", "ramfs", "rootfs", "tmpfs"})
"""Local, but gone with the container or at the next start."""

LOCAL = PASSING | {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "nilfs2", "reiserfs", "bcachefs"),
    *("ubifs", "jffs2", "fuseblk"),  # fuseblk: a block device by a driver outside the kernel, as ntfs-3g
    *("ntfs", "ntfs3", "vfat", "msdos", "exfat", "udf"),
    *("apfs", "hfs", "hfsplus", "ufs", "ffs", "hammer2"),
}
"""File system types whose locks are the kernel's own. Whatever is not here may have its locks on another machine, or
none: network drives, shares with a virtual machine's host (virtiofs, vboxsf, 9p), object stores and all of FUSE."""

UNKNOWN = "unknown"
_BSD_LINE = re.compile(r"^.* on (?P<point>/.*) \((?P<type>[^,()]+)[^()]*\)$")
_WINDOWS = {2: "removable", 3: "fixed", 4: "mapped", 5: "cdrom", 6: "ramdisk"}
_WINDOWS_LOCAL = {"removable", "fixed", "ramdisk"}


def drive_type(mount_table: str, path: PurePath) -> str:
    """The type of the file system that holds ``path``; ``unknown`` where the table does not tell.

    Args:
        mount_table: the text of Linux's ``/proc/mounts``, or what ``mount`` prints on macOS.
        path: absolute, symbolic links resolved.
    """
    best, kind = -1, UNKNOWN
    for line in mount_table.split("\n"):  # not splitlines: a path may hold U+2028
        mount = _parse(line)
        if mount is None:
            continue
        point, found = mount
        depth = len(PurePath(point).parts)
        if path.is_relative_to(point) and depth >= best:  # a later mount on the same point hides the earlier
            best, kind = depth, found
    return kind


def drive_type_of(path: Path) -> str:
    """:func:`drive_type` by this machine's mount table; a UNC path (``//server/share``) is ``unc``."""
    path = path.resolve()
    if path.as_posix().startswith("//"):
        return "unc"
    if sys.platform == "win32":
        import ctypes

        return _WINDOWS.get(ctypes.windll.kernel32.GetDriveTypeW(path.anchor), UNKNOWN)
    table = Path("/proc/mounts")
    if table.exists():
        return drive_type(table.read_text(encoding="utf-8", errors="surrogateescape"), path)
    try:
        printed = subprocess.run(["mount"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return UNKNOWN
    return drive_type(printed, path)


def is_local(kind: str) -> bool:
    """Whether drives of this type are of this machine: known to be, or vouched for by the user."""
    vouched = {word.strip() for word in os.environ.get(VOUCHED, "").split(",")}
    return kind in LOCAL or kind in vouched or (sys.platform == "win32" and kind in _WINDOWS_LOCAL)


def _parse(line: str) -> tuple[str, str] | None:
    """(mount point, type) of one line of either table."""
    if found := _BSD_LINE.match(line):
        return found["point"], found["type"]
    fields = line.split(" ")
    if len(fields) < 3 or not fields[1].startswith("/"):
        return None
    return unescaped(fields[1]), fields[2]
