"""Goes into the sandbox, then becomes the program. Runs as a script of its own, with the standard library only.

    python enter.py PLAN.json            set up as planned, then execve
    python enter.py --probe FOLDER       print what this machine allows: {"mounts": …, "overlay": …, "network": …}

The plan: `argv`, `env`, `cwd`, `layers` ([lower, upper, work]), `files` (overlay | bind | none), `network` (bool: cut
it off), `report` (a file that gets one JSON line: what was done, or the error).
"""

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
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
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
        source.encode(),
        target.encode(),
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


def mount_layer(lower: str, upper: str, work: str, how: str, in_user_namespace: bool) -> None:
    """Put the copy-on-write layer over the folder it belongs to."""
    if how == "bind":
        mount(upper, lower, None, MS_BIND, None)
        return
    for path in (lower, upper, work):
        if any(sign in path for sign in ",:\\"):
            raise OSError(f"the overlay file system cannot take the path {path!r}")
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount("overlay", lower, "overlay", 0, options + (",userxattr" if in_user_namespace else ""))


def loopback_up() -> None:
    """A new network namespace has a loopback device that is down; torch.distributed and others need it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | IFF_UP, b""))


def isolate(plan: dict[str, Any]) -> None:
    """Namespaces, layers and loopback as planned, and the user's own identity again."""
    user = os.getuid(), os.getgid()
    flags = (CLONE_NEWNS if plan["files"] != "none" else 0) | (
        CLONE_NEWNET if plan["network"] else 0
    )
    if not flags:
        return
    in_user_namespace = enter_namespaces(flags)
    if plan["files"] != "none":
        for lower, upper, work in plan["layers"]:
            mount_layer(lower, upper, work, plan["files"], in_user_namespace)
    if plan["network"]:
        loopback_up()
    if in_user_namespace:
        unshare(CLONE_NEWUSER)
        _map_user(user, (0, 0))


def probe(folder: str) -> dict[str, bool]:
    """Try each kind of isolation in a child of its own."""
    paths = [os.path.join(folder, name) for name in ("lower", "upper", "work")]  # noqa: PTH118
    for path in paths:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103

    def works(files: str, network: bool) -> bool:
        pid = os.fork()
        if pid == 0:
            try:
                isolate({"files": files, "network": network, "layers": [paths]})
            except OSError:
                os._exit(1)
            os._exit(0)
        return os.waitpid(pid, 0)[1] == 0

    return {
        "overlay": works("overlay", False),
        "mounts": works("bind", False),
        "network": works("none", True),
    }


def main() -> None:
    """See the module's docstring."""
    if sys.argv[1] == "--probe":
        print(json.dumps(probe(sys.argv[2])))
        return
    with open(sys.argv[1]) as file:  # noqa: PTH123
        plan = json.load(file)
    parent = os.getppid()
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    error = None
    try:
        isolate(plan)
        os.chdir(plan["cwd"])
    except OSError as caught:
        error = str(caught)
    with open(plan["report"], "w") as file:  # noqa: PTH123
        json.dump({"error": error}, file)
    # If Headroom dies, whatever way, the program must not go on alone. Set last: a change of user namespace clears it.
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if error is not None or os.getppid() != parent:
        sys.exit(1)
    os.execve(plan["argv"][0], plan["argv"], plan["env"])


if __name__ == "__main__":
    main()
