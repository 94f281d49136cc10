from __future__ import annotations

import contextlib
import os
import resource
import socket
import tempfile
from pathlib import Path

import pytest

from replica.commands.check import machine as local_module
from replica.commands.check.machine import kernels, local, secrets
from replica.native.compiling.code_cache import stamp
from tests.unit.commands.check.facts import config


def states(relay_dir: Path | None, holder: str | None = None, **options: object) -> dict[str, str]:
    if relay_dir is not None:
        options["relay_dir"] = relay_dir
    return {one.check: one.state for one in local(config(**options), holder)}


def test_a_directory_that_is_there_or_can_be_made(tmp_path: Path) -> None:
    assert states(tmp_path)["relay_dir"] == "ok"
    assert states(tmp_path / "a" / "b")["relay_dir"] == "ok"
    assert not (tmp_path / "a").exists()
    assert states(None)["relay_dir"] == "note"
    assert states(tmp_path, "4711")["relay_dir"] == "note"


def test_a_directory_that_every_user_can_read() -> None:
    with tempfile.TemporaryDirectory() as everybodys:  # the folders of pytest are closed themselves
        relay = Path(everybodys) / "relay"
        relay.mkdir()
        for mode, way, wanted in ((0o755, 0o755, "warning"), (0o750, 0o755, None), (0o755, 0o700, None)):
            relay.chmod(mode)
            relay.parent.chmod(way)
            assert states(relay).get("relay_access") == wanted
        relay.parent.chmod(0o755)
        (found,) = [one for one in local(config(relay_dir=relay), None) if one.check == "relay_access"]
        assert f"chmod o-rwx {relay}" in found.fix


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (one, *_) = local(config(relay_dir=tmp_path / "file" / "relay"), None)
    assert (one.check, one.state, "not a directory" in one.what) == ("relay_dir", "missing", True)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    pid = os.fork()  # root may write everywhere
    if not pid:
        answer = "no answer"
        try:
            with contextlib.suppress(PermissionError):
                os.setuid(65534)
            # The first result only: others look at files of ours, which nobody may not be allowed to see.
            one = next(iter(local(config(relay_dir=tmp_path / "relay"), None)))
            answer = one.state if one.check == "relay_dir" else one.check
        finally:
            os._exit(0 if answer == "missing" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as ours:
        # Bound all the while, so that no other program gets the port; who listens is another matter.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{ours.getsockname()[1]}"
        with socket.create_server(ours.getsockname()):
            (one,) = [one for one in local(config(http_listen=address), None) if one.check == "http_listen"]
            assert one.state == "missing"
            assert one.what.endswith("cannot be listened on: Address already in use")
            assert states(tmp_path, "4711", http_listen=address)["http_listen"] == "note"
        assert states(tmp_path, http_listen=address)["http_listen"] == "ok"
        assert states(tmp_path, http_listen=address.replace("127.0.0.1", ""))["http_listen"] == "ok"


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    assert states(tmp_path, http_listen="192.0.2.1:9306")["http_listen"] == "missing"


def test_kernels_that_wait_for_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_module, "CACHE", None)
    assert kernels().state == "warning"
    monkeypatch.setattr(local_module, "CACHE", str(tmp_path))
    assert kernels().state == "note"
    stamp(tmp_path).touch()
    assert kernels().state == "ok"


def test_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    assert states(None)["descriptors"] == "warning"


@pytest.mark.parametrize(("mode", "found"), [(0o600, []), (0o640, []), (0o644, ["warning"])])
def test_a_password_that_everybody_can_read(tmp_path: Path, mode: int, found: list[str]) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    file.chmod(mode)
    assert [one.state for one in secrets(config(password_file=file), {})] == found
    assert [one.state for one in secrets(config(password="x"), {"password": str(file)})] == found
    client = tmp_path / "my.cnf"
    client.write_text("[client]\npassword=x\n")
    client.chmod(mode)
    assert [one.state for one in secrets(config(defaults_file=client), {})] == found
    client.write_text("[client]\nuser=x\n")
    assert list(secrets(config(defaults_file=client), {})) == []


def test_a_password_on_the_command_line() -> None:
    (one,) = secrets(config(password="x"), {"password": "--password"})
    assert one.state == "warning"
    assert list(secrets(config(password="x"), {"password": "MARIADB_REPLICA_PASSWORD"})) == []
