"""What a disk may hold after the power went: a model of a file system that keeps for certain only what was fsynced.

`record` runs a program and notes what it does to a folder, call by call (syscalls.py). `Disk` does the same in memory,
and `Disk.after_a_cut` tells what may be left. The rules:

- What was there before the program began is on the disk.
- The content of a file is on the disk as it was at its last fsync; without one, never. What was written since is there
  in full ("new"), or not at all ("old": the content of the last fsync, or 0 bytes), or the file has 0 bytes ("cut"),
  file by file. A file's size and bytes do not come apart otherwise: torn pages are left out, and digests find those.
- A name made, renamed or removed is on the disk once its folder was fsynced. Until then it may be there or not, each
  change by itself and whatever became of those before or after it. Fsyncing a file says nothing about its name;
  fsyncing a folder nothing about what lies in the folders inside it.
- A rename is one change: both of its names, or neither, even across folders, as every journal has it. Across
  folders it is on the disk once the folder it goes to was fsynced.
- Modes are those that were asked for: they are part of what makes a file here, and of no interest to an install.

Stricter than ext4, XFS, Btrfs and F2FS are, most of which keep the order of changes and write out a file before the
rename that puts it in another's place.
"""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tests.unit.runtime.syscalls import Call, run

Content = Literal["new", "old", "cut"]
Change = tuple[int, str, "int | None"]  # folder, name, and what it is then: an inode, or nothing
_ROOT: Final = 1


@dataclass(frozen=True)
class Operation:
    """One call as the model needs it: paths relative to the recorded folder."""

    name: str
    paths: tuple[str, ...]
    flags: int = 0
    position: int = 0
    data: bytes = b""


@dataclass
class Node:
    """An inode. `data` is the content now and `kept` the one on the disk; of a folder, so are its entries."""

    kind: Literal["file", "folder", "link"]
    mode: int
    data: bytes = b""
    kept: bytes | None = None
    entries: dict[str, int] = field(default_factory=dict)
    kept_entries: dict[str, int] = field(default_factory=dict)


@dataclass
class Group:
    """Changes that happen together, durable when the folder `owner` is fsynced."""

    owner: int
    changes: tuple[Change, ...]


def record(program: Callable[[], int], folder: Path) -> tuple[int, list[Operation]]:
    """Run `program` and return what it ended with and what it did below `folder`, in order."""
    operations: list[Operation] = []

    def note(call: Call) -> None:
        operations.extend(_operation(call, str(folder)))

    return run(program, folder, note), operations


def _operation(call: Call, root: str) -> Iterator[Operation]:
    paths = tuple(os.path.relpath(path, root) for path in call.paths)
    name = call.name.removesuffix("at").removesuffix("at2")
    if name in ("open",):
        flags = call.arguments[2 if call.name == "openat" else 1]
        yield Operation("open", paths, flags=flags)
    elif name in ("write", "pwrite64"):
        position = call.position() if name == "write" else call.arguments[3]
        yield Operation("write", paths, position=position, data=call.memory(call.arguments[1], call.arguments[2]))
    elif name in ("truncate", "ftruncate"):
        yield Operation("truncate", paths, position=call.arguments[1])
    elif name == "symlink":
        yield Operation("symlink", paths, data=os.fsencode(call.text(0)))
    elif name == "unlink":
        folder = call.name == "unlinkat" and call.arguments[2] & 0x200  # AT_REMOVEDIR
        yield Operation("rmdir" if folder else "unlink", paths)
    elif name in ("fsync", "fdatasync", "rename", "mkdir", "rmdir"):
        yield Operation(name.replace("fdatasync", "fsync"), paths)
    elif name not in ("chmod", "fchmod", "fchmodat2", "utimens"):
        raise NotImplementedError(f"the model does not know {call.name}")


class Disk:
    """A folder, as programs see it and as it is on the disk."""

    def __init__(self, start: Path) -> None:
        self._nodes: dict[int, Node] = {}
        self._pending: list[Group] = []
        self._next = _ROOT
        self._read(start)

    def _read(self, path: Path) -> int:
        number, mode = self._new(self._node_of(path)), path.lstat().st_mode
        if stat.S_ISDIR(mode):
            entries = {child.name: self._read(child) for child in sorted(path.iterdir())}
            self._nodes[number].entries, self._nodes[number].kept_entries = dict(entries), entries
        return number

    def _node_of(self, path: Path) -> Node:
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            return Node("folder", mode & 0o777)
        data = os.fsencode(path.readlink()) if stat.S_ISLNK(mode) else path.read_bytes()
        return Node("link" if stat.S_ISLNK(mode) else "file", mode & 0o777, data, data)

    def _new(self, node: Node) -> int:
        number, self._next = self._next, self._next + 1
        self._nodes[number] = node
        return number

    def do(self, operation: Operation) -> None:
        """Carry out one operation. What the kernel would refuse (a name that is there, or is not) changes nothing."""
        getattr(self, f"_{operation.name}")(operation)

    def _find(self, path: str) -> int | None:
        number: int | None = _ROOT
        for part in Path(path).parts:
            number = self._nodes[number].entries.get(part) if number is not None else None
        return number

    def _place(self, path: str) -> tuple[int, str]:
        folder = self._find(os.path.dirname(path))  # noqa: PTH120 - a path of the model, not of this machine
        assert folder is not None, path
        return folder, os.path.basename(path)  # noqa: PTH119

    def _change(self, owner: int, *changes: Change) -> None:
        for folder, name, number in changes:
            _put(self._nodes[folder].entries, name, number)
        self._pending.append(Group(owner, changes))

    def _make(self, path: str, node: Node) -> None:
        if self._find(path) is None:
            folder, name = self._place(path)
            self._change(folder, (folder, name, self._new(node)))

    def _open(self, operation: Operation) -> None:
        if operation.flags & os.O_CREAT:
            self._make(operation.paths[0], Node("file", 0o644))
        number = self._find(operation.paths[0])
        if number is not None and operation.flags & os.O_TRUNC:
            self._nodes[number].data = b""

    def _write(self, operation: Operation) -> None:
        number = self._find(operation.paths[0])
        if number is not None:  # None: removed meanwhile, and still open
            node, end = self._nodes[number], operation.position + len(operation.data)
            node.data = node.data[: operation.position] + operation.data + node.data[end:]

    def _truncate(self, operation: Operation) -> None:
        number = self._find(operation.paths[0])
        if number is not None:
            self._nodes[number].data = self._nodes[number].data[: operation.position].ljust(operation.position, b"\0")

    def _mkdir(self, operation: Operation) -> None:
        self._make(operation.paths[0], Node("folder", 0o755))

    def _symlink(self, operation: Operation) -> None:
        self._make(operation.paths[0], Node("link", 0o777, operation.data, operation.data))

    def _unlink(self, operation: Operation) -> None:
        number = self._find(operation.paths[0])
        if number is not None and self._nodes[number].kind != "folder":
            folder, name = self._place(operation.paths[0])
            self._change(folder, (folder, name, None))

    def _rmdir(self, operation: Operation) -> None:
        number = self._find(operation.paths[0])
        if number is not None and self._nodes[number].kind == "folder" and not self._nodes[number].entries:
            folder, name = self._place(operation.paths[0])
            self._change(folder, (folder, name, None))

    def _rename(self, operation: Operation) -> None:
        number = self._find(operation.paths[0])
        if number is not None:
            (here, old), (there, new) = map(self._place, operation.paths)
            self._change(there, (here, old, None), (there, new, number))

    def _fsync(self, operation: Operation) -> None:
        number = self._find(operation.paths[0])
        if number is None:
            return
        self._nodes[number].kept = self._nodes[number].data
        for group in [group for group in self._pending if group.owner == number]:
            self._pending.remove(group)
            for folder, name, what in group.changes:
                _put(self._nodes[folder].kept_entries, name, what)

    def now(self) -> dict[str, tuple[str, bytes]]:
        """What programs see: path to kind and content."""
        return dict(self._walk(_ROOT, "", {n: node.entries for n, node in self._nodes.items()}, lambda n: "new"))

    def after_a_cut(self, keeps: Callable[[], bool], content: Callable[[], Content]) -> dict[str, tuple[str, bytes]]:
        """What may be left when the power goes now.

        Args:
            keeps: asked for each change of names that was not made durable.
            content: asked for each file whose bytes were not.
        """
        entries = {number: dict(node.kept_entries) for number, node in self._nodes.items()}
        for group in self._pending:
            if keeps():
                for folder, name, what in group.changes:
                    _put(entries[folder], name, what)
        chosen = {n: content() for n, node in self._nodes.items() if node.kind == "file" and node.kept != node.data}
        return dict(self._walk(_ROOT, "", entries, lambda n: chosen.get(n, "new")))

    def _walk(
        self, number: int, inside: str, entries: dict[int, dict[str, int]], content: Callable[[int], Content]
    ) -> Iterator[tuple[str, tuple[str, bytes]]]:
        for name, child in sorted(entries[number].items()):
            path = f"{inside}/{name}" if inside else name
            node = self._nodes[child]
            if node.kind == "folder":
                yield path, ("folder", b"")
                yield from self._walk(child, path, entries, content)
            else:
                kinds = {"new": node.data, "old": node.kept or b"", "cut": b""}
                yield path, (node.kind, kinds[content(child)])


def _put(entries: dict[str, int], name: str, number: int | None) -> None:
    entries.pop(name, None)
    if number is not None:
        entries[name] = number


def cuts(disk: Disk, seeds: int, chance: random.Random) -> Iterator[tuple[str, dict[str, tuple[str, bytes]]]]:
    """What may be left when the power goes now: everything lost in three ways, and `seeds` random mixtures."""
    contents: tuple[Content, ...] = ("new", "old", "cut")
    yield "all lost", disk.after_a_cut(lambda: False, lambda: "old")
    yield "names kept, contents old", disk.after_a_cut(lambda: True, lambda: "old")
    yield "names kept, contents cut", disk.after_a_cut(lambda: True, lambda: "cut")
    for number in range(seeds):
        yield f"mixture {number}", disk.after_a_cut(lambda: chance.random() < 0.5, lambda: chance.choice(contents))


def write_out(tree: dict[str, tuple[str, bytes]], folder: Path, modes: Callable[[str], int]) -> None:
    """Lay `tree` into the empty `folder`. `modes` tells which mode a file has."""
    for path, (kind, data) in tree.items():
        target = folder / path
        if kind == "folder":
            target.mkdir()
        elif kind == "link":
            target.symlink_to(os.fsdecode(data))
        else:
            target.write_bytes(data)
            target.chmod(modes(path))


def read_in(folder: Path) -> dict[str, tuple[str, bytes]]:
    """The tree that lies in `folder`, as `Disk.now` has it."""
    found: dict[str, tuple[str, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        else:
            found[name] = ("folder", b"") if path.is_dir() else ("file", path.read_bytes())
    return found


def digest(tree: dict[str, tuple[str, bytes]]) -> str:
    """The same for the same trees: a state that was tried once need not be tried again."""
    hashed: Any = hashlib.sha256()
    for path, (kind, data) in sorted(tree.items()):
        hashed.update(f"{path}\0{kind}\0{len(data)}\0".encode())
        hashed.update(data)
    return str(hashed.hexdigest())
