"""The options of `spark.read` over binlog files: which files, the keys to encrypted ones, names, and damage.

No option holds a secret: keys are named by the files they lie in, which tasks open themselves.
"""

from __future__ import annotations

import dataclasses

from replica.option_values import switch
from streaming_source.options import values
from streaming_source.options.row_options import RowOptions, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileOptions(RowOptions):
    """The parsed options of a batch read."""

    path: tuple[str, ...] = option(
        "path",
        values.paths,
        None,
        "Binlog files on disk, for spark.read: files, directories and globs, several with commas",
    )
    key_file: str | None = option(
        "keyFile", values.file, None, "Keys of encrypted binlogs, as file_key_management has them: id;hexkey a line"
    )
    file_key: str | None = option(
        "fileKey", values.file, None, "File with the password of an encrypted keyFile (file_key_management_filekey)"
    )
    skip_damaged: bool = option(
        "skipDamaged", switch, "false", "Leave out damaged transactions, and log each, instead of stopping"
    )
