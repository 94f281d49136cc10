"""Options of batch reads: a path in any form, nothing of a server beside it, no secret among them."""

from __future__ import annotations

import pickle

import pytest

from replica.errors import ConfigError
from streaming_source.options.source_options import OPTIONS, SourceOptions, file_options, names_files

BASE = {"path": "/var/log/bin.000001", "table": "shop.orders"}
WITH_A_SERVER = [option.name for option in OPTIONS if option.scope in ("stream", "replica")]
OF_FILES = [option.name for option in OPTIONS if option.scope == "files"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/bin.000001", ("/a/bin.000001",)),
        (" /a , b/*.gz ", ("/a", "b/*.gz")),
        ("file:///var/log/bin.000001", ("/var/log/bin.000001",)),
        ("file:/var/log", ("/var/log",)),
    ],
)
def test_a_path_is_a_file_a_folder_a_glob_a_url_or_several(path: str, expected: tuple[str, ...]) -> None:
    assert file_options({**BASE, "path": path}).path == expected


def test_several_paths_of_load_arrive_as_a_list() -> None:
    given = {"paths": '["/a,b/bin.000001", "/c"]', "table": "a.b"}
    assert names_files(given)
    assert file_options(given).path == ("/a,b/bin.000001", "/c")


def test_only_path_and_paths_mean_files() -> None:
    assert names_files({"PATH": "x"})
    assert not names_files({"user": "repl", "keyFile": "x"})


def test_defaults_and_every_option_in_lower_case() -> None:
    options = file_options(BASE)
    assert (options.key_file, options.file_key, options.schema_file, options.skip_damaged) == (None, None, None, False)
    assert (options.invalid_dates, options.invalid_text, options.geometry) == ("null", "replace", "binary")
    options = file_options(
        {
            **BASE,
            "keyfile": "/k",
            "filekey": "FILE:/p",
            "schemafile": "s.sql",
            "skipdamaged": "true",
            "invalidtext": "error",
            "geometry": "SPARK",
            "rowshape": "flat",
            "includesql": "true",
        }
    )
    assert (options.key_file, options.file_key, options.schema_file) == ("/k", "/p", "s.sql")
    assert options.skip_damaged
    assert (options.invalid_text, options.geometry, options.row_shape) == ("error", "spark", "flat")
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": ""}, "names an empty path"),
        ({"path": "/a,,/b"}, "names an empty path"),
        ({"path": "s3://bucket/bin.000001"}, "is on s3://, but only paths that the nodes can open"),
        ({"path": "/a\0b"}, "holds a zero byte"),
        ({"fileKey": "/p"}, "fileKey needs keyFile"),
        ({"skipDamaged": "perhaps"}, "is neither true nor false"),
        ({"tables": "a.*"}, "table and tables exclude each other"),
        ({"pth": "x"}, "Did you mean path\\?"),
    ],
)
def test_a_bad_value_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        file_options({**BASE, **given})


@pytest.mark.parametrize("name", WITH_A_SERVER)
def test_options_of_a_server_are_refused_beside_a_path(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name} is for a server, and path reads files without one"):
        file_options({**BASE, name: "1"})


@pytest.mark.parametrize("name", OF_FILES)
def test_options_of_files_are_refused_without_a_path(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name} is for binlog files, and no path is given"):
        SourceOptions.parse({"user": "repl", "table": "a.b", name: "x"})


def test_without_path_and_user_both_ways_are_named() -> None:
    with pytest.raises(ConfigError, match=r"option user is missing\..*To read binlog files, set path"):
        SourceOptions.parse({"table": "a.b"})
    with pytest.raises(ConfigError, match="option path is missing"):
        file_options({"paths": "[]", "table": "a.b"})
