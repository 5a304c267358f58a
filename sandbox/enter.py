"""Goes into the sandbox, starts the program, and leaves nothing of it behind.

A script of its own, with the standard library only.

    python enter.py PLAN.json            set up as planned, run, leave as the program left
    python enter.py --probe FOLDER       print what this machine allows: {"mounts": …, "overlay": …, "network": …}

The plan: `argv`, `env`, `cwd`, `layers` ([lower, upper, work], outer ones first), `keep` (paths that a layer hides and
that are shown again, read-only), `files` (overlay | bind | none), `network` (bool: cut it off), `report` (a file that
gets one JSON line: what was done, or the error).

This process stays as the program's parent. Orphans come to it, so when the program ends, or Headroom dies, it can end
whatever is left, sessions of their own included.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any

# Linux: include/uapi/linux/sched.h, sys/mount.h, linux/prctl.h, linux/sockios.h
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
MS_RELATIME = 0x200000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces in `flags` for new ones."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None) -> None:
    """Attach a file system, as the system call of that name does."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    _check(result, f"mount {target}")


def _map_user(inner: tuple[int, int], outer: tuple[int, int]) -> None:
    with open("/proc/self/setgroups", "w") as file:  # noqa: PTH123
        file.write("deny")
    for name, inside, outside in (("uid", inner[0], outer[0]), ("gid", inner[1], outer[1])):
        with open(f"/proc/self/{name}_map", "w") as file:  # noqa: PTH123
            file.write(f"{inside} {outside} 1")


def enter_namespaces(flags: int) -> bool:
    """Unshare; as an ordinary user through a user namespace. Returns whether there is such a namespace."""
    if os.geteuid() == 0:
        unshare(flags)
        in_user_namespace = False
    else:
        user = os.getuid(), os.getgid()
        unshare(CLONE_NEWUSER | flags)
        _map_user((0, 0), user)
        in_user_namespace = True
    if flags & CLONE_NEWNS:
        mount("none", "/", None, MS_REC | MS_PRIVATE, None)
    return in_user_namespace


def handle(path: str) -> str:
    """A name for what lies at `path` now, whatever is mounted over it later; free of commas and colons, too."""
    return f"/proc/self/fd/{os.open(path, os.O_PATH | os.O_CLOEXEC)}"


def mount_layers(plan: dict[str, Any], in_user_namespace: bool) -> list[str]:
    """Put the copy-on-write layers over their folders. Returns paths below them that could only be shown read-only."""
    layers = [(lower, *map(handle, (lower, upper, work))) for lower, upper, work in plan["layers"]]
    kept = [(path, handle(path)) for path in plan["keep"]]
    read_only = []
    for number, (target, lower, upper, work) in enumerate(layers):
        try:
            _mount_layer(target, lower, upper, work, plan["files"], in_user_namespace)
        except OSError:
            if number == 0 or not any(
                target.startswith(above[0] + "/") for above in layers[:number]
            ):
                raise
            kept.append(
                (target, lower)
            )  # a mount below the folder whose file system cannot be a lower layer
    for path, source in kept:
        mount(source, path, None, MS_BIND | MS_REC, None)
        mount("none", path, None, MS_BIND | MS_REMOUNT | MS_RDONLY | locked_flags(path), None)
        read_only.append(path)
    return read_only


def locked_flags(path: str) -> int:
    """The mount flags that a remount inside a user namespace has to repeat; of these, statvfs has the same values."""
    flags = os.statvfs(path).f_flag
    repeated = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
    return (flags & repeated) | (MS_RELATIME if flags & os.ST_RELATIME else 0)


def _mount_layer(
    target: str, lower: str, upper: str, work: str, how: str, in_user_namespace: bool
) -> None:
    if how == "bind":
        mount(upper, target, None, MS_BIND, None)
        return
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount("overlay", target, "overlay", 0, options + (",userxattr" if in_user_namespace else ""))


def loopback_up() -> None:
    """A new network namespace has a loopback device that is down; torch.distributed and others need it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | IFF_UP, b""))


def isolate(plan: dict[str, Any]) -> list[str]:
    """Namespaces, layers and loopback as planned, and the user's own identity again; see `mount_layers`."""
    user = os.getuid(), os.getgid()
    flags = (CLONE_NEWNS if plan["files"] != "none" else 0) | (
        CLONE_NEWNET if plan["network"] else 0
    )
    if not flags:
        return []
    in_user_namespace = enter_namespaces(flags)
    read_only = mount_layers(plan, in_user_namespace) if plan["files"] != "none" else []
    if plan["network"]:
        loopback_up()
    if in_user_namespace:
        unshare(CLONE_NEWUSER)
        _map_user(user, (0, 0))
    return read_only


def probe(folder: str) -> dict[str, bool]:
    """Try each kind of isolation in a child of its own."""
    paths = [os.path.join(folder, name) for name in ("lower", "upper", "work")]  # noqa: PTH118
    for path in paths:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103

    def works(files: str, network: bool) -> bool:
        pid = os.fork()
        if pid == 0:
            try:
                isolate({"files": files, "network": network, "layers": [paths], "keep": []})
            except OSError:
                os._exit(1)
            os._exit(0)
        return os.waitpid(pid, 0)[1] == 0

    return {
        "overlay": works("overlay", False),
        "mounts": works("bind", False),
        "network": works("none", True),
    }


def run_program(plan: dict[str, Any]) -> int:
    """Start the program, wait for it, end what it left; returns its wait status."""
    me = os.getpid()
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    program = os.fork()
    if program == 0:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != me:
            os._exit(1)
        os.execve(plan["argv"][0], plan["argv"], plan["env"])
    # Ctrl-C is for the program: it reaches the whole process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _abandon)
    status = None
    while status is None:
        ended, code = os.waitpid(-1, 0)
        status = code if ended == program else None
    end_descendants()
    return status


def _abandon(_number: int, _frame: Any) -> None:
    """Headroom has died: so must everything of the program."""
    end_descendants()
    os._exit(1)


def end_descendants() -> None:
    """SIGKILL to every descendant until none is left."""
    while True:
        left = descendants(os.getpid())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def descendants(root: int) -> set[int]:
    """All processes below `root`, zombies left out; from the parents that /proc names."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            with open(f"/proc/{name}/stat") as file:  # noqa: PTH123
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(name))
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def leave(status: int) -> None:
    """End as the program ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def main() -> None:
    """See the module's docstring."""
    if sys.argv[1] == "--probe":
        print(json.dumps(probe(sys.argv[2])))
        return
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        plan = json.load(file)
    parent = os.getppid()
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    error, read_only = None, []
    try:
        read_only = isolate(plan)
        os.chdir(plan["cwd"])
    except OSError as caught:
        error = str(caught)
    with open(plan["report"], "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"error": error, "read_only": read_only}, file)
    # If Headroom dies, whatever way, nothing must go on alone. Set last: a change of user namespace clears it.
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if error is not None or os.getppid() != parent:
        sys.exit(1)
    leave(run_program(plan))


if __name__ == "__main__":
    main()
