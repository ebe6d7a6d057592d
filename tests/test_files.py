"""Atomic files and folders, regular files only, one lock holder at a time."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from macro_routing.errors import RunError
from macro_routing.files import (
    acquire_lock,
    atomic_output,
    describe_os_error,
    open_atomically,
    open_regular_file,
    write_atomically,
)


@pytest.mark.parametrize("concurrent", [False, True])
def test_a_file_is_replaced_by_text_or_bytes(tmp_path, concurrent):
    path = tmp_path / "file.json"
    write_atomically(path, "é\n", concurrent=concurrent)
    assert path.read_bytes() == "é\n".encode()
    write_atomically(path, b"\x00\xff", concurrent=concurrent)
    assert path.read_bytes() == b"\x00\xff"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_previous_file(tmp_path, failure):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(type(failure)), open_atomically(path) as file:  # noqa: PT012
        file.write(b"half")
        raise failure
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_previous_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("before")

    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space") as caught:
        write_atomically(path, "after")
    assert describe_os_error(caught.value) == "the disk is full"
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_data_reach_the_disk_before_the_name(tmp_path, monkeypatch):
    path, synced = tmp_path / "file", []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append((os.fstat(descriptor).st_size, path.exists())))
    write_atomically(path, "four")
    assert synced == [(4, False)]


def test_a_killed_writer_leaves_the_previous_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    program = (
        "import os, sys; from pathlib import Path; from macro_routing.files import open_atomically\n"
        "with open_atomically(Path(sys.argv[1])) as file: file.write(b'half'); file.flush(); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert done.returncode == -9
    assert path.read_text() == "before"
    write_atomically(path, "after")
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_in_the_way_is_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "file.unfinished").symlink_to(other)
    write_atomically(tmp_path / "file", "new")
    assert other.read_text() == "mine"
    assert not (tmp_path / "file").is_symlink()


def test_concurrent_writers_do_not_mix(tmp_path):
    path = tmp_path / "file"
    program = (
        "import sys; from pathlib import Path; from macro_routing.files import write_atomically\n"
        "for _ in range(30): write_atomically(Path(sys.argv[1]), sys.argv[2] * 50_000, concurrent=True)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), letter]) for letter in "ab"]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            assert path.read_text() in {"a" * 50_000, "b" * 50_000}
    assert [writer.returncode for writer in writers] == [0, 0]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_output_is_moved_when_complete(tmp_path, kind):
    out = tmp_path / "a" / "b" / "out"
    with atomic_output(out) as temporary:
        assert not out.exists()
        if kind == "folder":
            temporary.mkdir()
        (temporary / "part" if kind == "folder" else temporary).write_text("whole")
    assert (out / "part" if kind == "folder" else out).read_text() == "whole"
    assert list(out.parent.iterdir()) == [out]


def test_a_failed_output_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="stop"), atomic_output(tmp_path / "a" / "b" / "out") as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise ValueError("stop")
    assert not list(tmp_path.iterdir())


def test_parents_that_others_use_stay(tmp_path):
    with pytest.raises(ValueError, match="stop"), atomic_output(tmp_path / "a" / "b" / "out"):  # noqa: PT012
        (tmp_path / "a" / "other").write_text("theirs")
        raise ValueError("stop")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["other"]


def test_only_regular_files_are_opened(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(RunError, match=r"link is a symbolic link.*remove it"):
        open_regular_file(tmp_path / "link")
    assert not (tmp_path / "target").exists()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunError, match="pipe is not a regular file"):
        open_regular_file(tmp_path / "pipe")
    with open_regular_file(tmp_path / "file") as file:
        file.write("one")
    with open_regular_file(tmp_path / "file") as file:
        file.write("two")
    assert (tmp_path / "file").read_text() == "onetwo"


def test_a_lock_has_one_holder(tmp_path):
    with acquire_lock(tmp_path / "lock"), pytest.raises(RunError, match=f"in use by process {os.getpid()} on"):
        acquire_lock(tmp_path / "lock")
    acquire_lock(tmp_path / "lock").close()


def test_a_lock_can_be_waited_for(tmp_path):
    order = []
    with acquire_lock(tmp_path / "lock"):
        waiting = threading.Thread(target=lambda: (acquire_lock(tmp_path / "lock", wait=True).close(), order.append(2)))
        waiting.start()
        waiting.join(0.2)
        order.append(1)
    waiting.join(10)
    assert order == [1, 2]


def test_a_lock_ends_with_its_process(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from macro_routing.files import acquire_lock\n"
        "lock = acquire_lock(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], check=False)
    assert Path(tmp_path / "lock").read_text().startswith("process ")
    acquire_lock(tmp_path / "lock").close()
