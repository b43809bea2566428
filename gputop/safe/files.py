"""Files accessible only to us: private folders, exclusive creation, careful reading of settings."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Mapping

from gputop.safe.text import clean


def opened(path: str | bytes | os.PathLike[str], *, folder: int | None = None, links: bool = True) -> int:
    """A descriptor for reading a regular file, without blocking; OSError for others, and for links without `links`."""
    looked = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW), dir_fd=folder)
    try:
        mode = os.fstat(looked).st_mode
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.open(f"/proc/self/fd/{looked}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    finally:
        os.close(looked)


SETTINGS_LIMIT = 1 << 20

_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,120}")
_STICKY_WORLD = stat.S_ISVTX | stat.S_IWOTH


class Refused(Exception):
    """A folder or file that we refuse to use; one line: what, why, what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(clean(reason))


class Folder:
    """Our own folder of mode 0700, held open: later changes of its path have no effect."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def create(self, name: str) -> int:
        """A descriptor of a new file of mode 0600, open for writing; Refused if the name exists, or on a disk error."""
        return _create(self._fd, self.path, _plain(name))

    def write(self, name: str, data: bytes) -> None:
        """Create a file with these bytes, mode 0600; Refused, with nothing left, if the name exists or on an error."""
        _write(self._fd, self.path, _plain(name), data)

    def replace(self, name: str, data: bytes) -> None:
        """Replace a file's contents atomically, never through a link."""
        _replace(self._fd, self.path, _plain(name), data)

    def remove(self, name: str) -> None:
        """Remove a file; a missing one is no error."""
        _unlink(self._fd, _plain(name))

    def sizes(self) -> dict[str, int]:
        """Sizes in bytes of the regular files."""
        found: dict[str, int] = {}
        with os.scandir(self._fd) as entries:
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
                except OSError:
                    continue
        return found

    def read(self, name: str, limit: int) -> bytes | None:
        """The bytes of a file; None if it is missing, larger than `limit`, or not our own regular file."""
        try:
            fd = os.open(_plain(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError:
            return None
        with open(fd, "rb") as file:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_size > limit:
                return None
            return file.read(limit)

    def lock(self, name: str, *, create: bool = True) -> int | None:
        """A descriptor that holds a lock on a file while it is open; None while another process holds it.

        OSError if the file is missing and must not be created, or where there are no locks.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        fd = os.open(_plain(name), flags, 0o600, dir_fd=self._fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        return fd

    def inner(self, name: str, *, new: bool = False) -> Folder:
        """A subfolder, created if needed, equally private; Refused if it is not, or with `new` if it exists."""
        return _within(self._fd, self.path, _plain(name), new=new)

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder; a missing or nonempty one is no error."""
        with contextlib.suppress(OSError):
            os.rmdir(_plain(name), dir_fd=self._fd)

    def folders(self) -> list[str]:
        """Sorted names of its subfolders."""
        with os.scandir(self._fd) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def free_bytes(self) -> int:
        """Free bytes on its disk."""
        found = os.fstatvfs(self._fd)
        return found.f_bavail * found.f_frsize

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


def state_folder(environ: Mapping[str, str] = os.environ, system: str = "/var/lib") -> Folder:
    """$XDG_STATE_HOME/gputop, created if needed; for root with another user's HOME (sudo -E), `system` instead."""
    base = state_place(environ, system)
    try:
        os.makedirs(base, mode=0o700, exist_ok=True)
    except OSError as error:
        raise _refused(base, error) from None
    return _private(base, "gputop")


def state_place(environ: Mapping[str, str] = os.environ, system: str = "/var/lib") -> str:
    """The parent of our state folder; creates nothing."""
    base = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        home = environ.get("HOME", "")
        if not os.path.isabs(home):
            raise Refused("nothing is saved because HOME is not set; set HOME or XDG_STATE_HOME")
        if not os.path.isdir(home):
            what = "is not a folder" if os.path.exists(home) else "does not exist"
            raise Refused(f"HOME {what}: nothing is saved; set HOME or XDG_STATE_HOME")
        base = os.path.join(home, ".local", "state")
    return system if os.geteuid() == 0 and _owner_of_nearest(base) != 0 else base


def in_state_folder(name: str) -> Folder:
    """A subfolder of the state folder, created if needed."""
    state = state_folder()
    try:
        return state.inner(name)
    finally:
        state.close()


def homely(path: str, environ: Mapping[str, str] = os.environ) -> str:
    """A path relative to the home folder: `~/.local/state`."""
    home = environ.get("HOME", "").rstrip("/")
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path


def runtime_place(environ: Mapping[str, str] = os.environ, shared: str = "/tmp") -> tuple[str, str]:
    """The parent of our runtime folder, and its name there: $XDG_RUNTIME_DIR/gputop, else gputop-UID."""
    base = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(base):
        try:
            if os.stat(base).st_uid == os.geteuid():
                return base, "gputop"
        except OSError:
            pass
    return shared, f"gputop-{os.geteuid()}"


def runtime_folder(environ: Mapping[str, str] = os.environ, shared: str = "/tmp") -> Folder:
    """The runtime folder, created if needed; Refused if another user has taken its name."""
    return _private(*runtime_place(environ, shared))


def read_settings(path: str, limit: int = SETTINGS_LIMIT) -> bytes | None:
    """The bytes of a settings file, None if missing; Refused if too large, or not a regular file of ours or root's."""
    try:
        # a pipe without a writer would block forever
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, error) from None
    try:
        _check_settings(path, os.fstat(fd))
        with open(fd, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise _refused(path, error) from None
    finally:
        os.close(fd)
    if len(data) > limit:
        raise Refused(f"{path} is larger than {limit} bytes: not read")
    return data


def read_by_others(path: str) -> bool:
    """Whether users other than its owner can read a file, by its mode; False if that is unknown."""
    try:
        return bool(os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def write_settings(path: str, data: bytes) -> None:
    """Write the settings file atomically, mode 0600, in a folder created if needed; or Refused.

    Never through a link, over another user's file, or where others may write.
    """
    base, name = os.path.split(os.path.abspath(path))
    if os.path.islink(path):
        raise Refused(f"{path} is a symbolic link: not written; edit its target")
    try:
        os.makedirs(base, mode=0o700, exist_ok=True)
        fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(base, error) from None
    try:
        _check_parent(base, os.fstat(fd))
        _replace(fd, base, name, data)
    finally:
        os.close(fd)


def replace_shared(folder: str, name: str, data: bytes) -> None:
    """Replace a file for other users to read, mode 0644, atomically, in an existing folder of anybody; or Refused.

    The owner of the folder may replace the file, but cannot make us write elsewhere: no link is followed.
    """
    fd = _folder(folder)
    try:
        _replace(fd, folder, _plain(name), data, mode=0o644)
    finally:
        os.close(fd)


def remove_shared(folder: str, name: str) -> None:
    """Remove such a file; a missing one, or an inaccessible folder, is no error."""
    with contextlib.suppress(Refused):
        fd = _folder(folder)
        _unlink(fd, _plain(name))
        os.close(fd)


def _folder(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(path, error) from None


def _check_settings(path: str, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise Refused(f"{path} is not a regular file: not read")
    if info.st_uid not in {os.geteuid(), 0}:
        raise Refused(f"{path} belongs to another user (uid {info.st_uid}): not read")
    if info.st_mode & stat.S_IWOTH:
        raise Refused(f"{path} is world-writable: not read; run chmod o-w on it")


def _create(folder: int, path: str, name: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o600, dir_fd=folder)
    except OSError as error:
        raise _refused(f"{path}/{name}", error) from None


def _write(folder: int, path: str, name: str, data: bytes, mode: int = 0o600) -> None:
    fd = _create(folder, path, name)
    try:
        with open(fd, "wb") as file:
            if mode != 0o600:
                os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        _unlink(folder, name)
        raise _refused(f"{path}/{name}", error) from None


def _replace(folder: int, path: str, name: str, data: bytes, mode: int = 0o600) -> None:
    _check_ours(folder, path, name)
    temporary = f"new-{os.urandom(8).hex()}"  # `secrets` loads OpenSSL: 4 MB
    _write(folder, path, temporary, data, mode)
    try:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        _unlink(folder, temporary)
        raise _refused(f"{path}/{name}", error) from None


def _unlink(folder: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _check_ours(folder: int, path: str, name: str) -> None:
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
        raise Refused(f"{path}/{name} was not created by gputop: not written; remove it")


def _private(base: str, name: str) -> Folder:
    try:
        parent = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(base, error) from None
    try:
        _check_parent(base, os.fstat(parent))
        return _within(parent, base, name)
    finally:
        os.close(parent)


def _within(parent: int, base: str, name: str, *, new: bool = False) -> Folder:
    path = os.path.join(base, name)
    try:
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            if new:
                raise
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        raise _refused(path, error) from None
    info = os.fstat(fd)
    mode = info.st_mode & 0o777
    if info.st_uid == os.geteuid() and mode == 0o700:
        return Folder(path, fd)
    os.close(fd)
    if info.st_uid != os.geteuid():
        raise Refused(f"{path} belongs to another user (uid {info.st_uid}): not used; ask its owner to remove it")
    raise Refused(f"{path} has mode {mode:04o}, not 0700: not used; inspect it, then run chmod 700")


def _check_parent(base: str, info: os.stat_result) -> None:
    if info.st_uid not in {os.geteuid(), 0}:
        raise Refused(f"{base} belongs to another user (uid {info.st_uid}): nothing is saved there")
    if info.st_mode & _STICKY_WORLD == stat.S_IWOTH:
        raise Refused(f"{base} is world-writable: nothing is saved there; run chmod o-w on it")


def _owner_of_nearest(path: str) -> int:
    while True:
        try:
            return os.stat(path).st_uid
        except OSError:
            if path == os.path.dirname(path):
                return -1
            path = os.path.dirname(path)


def _plain(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Refused(f"{name[:40]!a} is not a file name that gputop uses")
    return name


def _refused(path: str, error: OSError) -> Refused:
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        return Refused(f"{path} is a link or not a folder: not used; remove it")
    return Refused(f"{path}: {os.strerror(error.errno or errno.EIO)}: nothing is saved there")
