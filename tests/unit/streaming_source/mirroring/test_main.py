"""The file of a mirror: the call's arguments as TOML, and what is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from streaming_source.mirroring import __main__ as program
from streaming_source.mirroring.__main__ import _report, main, read_mirror_file

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = 'tables = "shop.*"\ninto = "lake.{table}"\ncheckpointLocation = "/c"\n'


def test_a_file_has_the_arguments_of_the_call(tmp_path: Path) -> None:
    path = tmp_path / "mirror.toml"
    path.write_text(WHOLE + "parallel = 2\n[trigger]\navailableNow = true\n", encoding="utf-8")
    given = {"tables": "shop.*", "into": "lake.{table}", "checkpointLocation": "/c", "parallel": 2}
    assert read_mirror_file(path) == given | {"trigger": {"availableNow": True}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tables = shop", "is not TOML"),
        ('tables = "shop.*"', "lacks into, checkpointLocation"),
        (WHOLE + 'trigger = "once"\n', "trigger has a value of the wrong kind"),
        (WHOLE + 'host = ["db1"]\n', "host has a value of the wrong kind"),
        (WHOLE + 'spark = "local"\n', "spark is the session"),
        (WHOLE + "[source]\nhost = 'db1'\n", "source has a value of the wrong kind"),
    ],
)
def test_what_is_no_mirror_is_refused_with_the_files_name(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mirror.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_mirror_file(path)
    assert main([str(path)]) == ConfigError.exit_code
    assert str(path) in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.toml")]) == ConfigError.exit_code
    assert "none.toml cannot be read: No such file" in capsys.readouterr().err
    assert main([]) == ConfigError.exit_code


def test_an_error_of_sparks_is_told_by_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    cause = "pyspark.errors.exceptions.captured.AnalysisException: [NOT_A_NAME] `a b` is no name.\n SQLSTATE: 42602"
    walk = '  File "sink.py", line 90, in __call__\n' * 100
    text = f"[STREAM_FAILED] Query [id = 1] terminated\n{walk}{cause}\n=== Streaming Query ===\nOffsets: {{}}"
    assert _report(text) == 1
    assert capsys.readouterr().err.strip() == cause
    assert _report("something else") == 1
    assert capsys.readouterr().err.strip() == "something else"


def test_an_interruption_has_the_code_of_shells_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(given: dict[str, object]) -> None:
        assert given["tables"] == "shop.*"
        raise KeyboardInterrupt

    path = tmp_path / "mirror.toml"
    path.write_text(WHOLE, encoding="utf-8")
    monkeypatch.setattr(program, "_run", interrupted)
    assert main([str(path)]) == program.INTERRUPTED
    assert capsys.readouterr().err.startswith("interrupted: the next start continues after")
