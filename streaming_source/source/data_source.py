"""`format("mariadb-binlog")`: checks options and tables when a query is loaded, and makes the readers.

`schema()` gives Spark the schema of the rows. `streamReader()` follows a server. `reader()` reads the binlog files that
the option `path` names, or a range of a server's binlog. `schema()` raises every error that can be known before the
first row, because the user then gets a clean AnalysisException. It checks options, login, the server's prerequisites,
files, unknown tables, and columns that cannot be decoded. The pickled instance carries the results of these checks, so
the processes that plan and read do not ask the server or scan files again.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.version import __version__ as spark_version

from replica.errors import ConfigError, ReplicaError
from streaming_source.driver.spark_border import require_spark, spark_border, warn_of_newer_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from replica.handshake.start.start import ServerEnd
    from streaming_source.driver.refused_stream import RefusedStream
    from streaming_source.files.load_files import LoadedFiles
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.source.batch.planned_reader import PlannedReader
    from streaming_source.source.batch.reader import BinlogFilesReader
    from streaming_source.source.batch.tables import TablesPlan
    from streaming_source.source.stream import ChangeStreamReader


class MariaDbBinlogSource(DataSource):
    """The data source `mariadb-binlog`, for `spark.dataSource.register` if Spark does not find it by its name.

    docs/spark.md describes its options and rows. Spark pickles instances into the query. The copy that tasks get
    carries no secret.
    """

    _plan: ReadPlan | None = None
    _latest: ServerEnd | None = None
    _tables: TablesPlan | None = None
    _load = ""
    _files: LoadedFiles | None = None
    _handed_out = False

    @classmethod
    def name(cls) -> str:
        return "mariadb-binlog"

    @spark_border()
    def schema(self) -> StructType:
        require_spark(spark_version)
        warn_of_newer_spark(spark_version)  # only here, because Spark asks for the schema once a load
        from streaming_source.options.source_options import names_files

        if names_files(self.options):
            files = self._loaded_files()
            files.check(files.plan)
            return files.plan.spark_schema()
        from streaming_source.options.source_options import SourceOptions
        from streaming_source.source.batch.server import end_at_load
        from streaming_source.source.load import load_plan

        self._load = uuid.uuid4().hex
        options = SourceOptions.parse(self.options)
        if options.content == "tables":
            return self._loaded_tables(options).schema
        self._plan = load_plan(self.options)
        # Spark does not say whether it loads for a batch or a stream. A batch read of this DataFrame ends at this
        # position, whenever it runs.
        self._latest = end_at_load(options)
        return self._plan.spark_schema()

    def _loaded_tables(self, options: SourceOptions) -> TablesPlan:
        from streaming_source.source.batch.tables import load_tables
        from streaming_source.source.load import load_plan

        if self._tables is None:
            self._tables = load_tables(options, load_plan(self.options))
        return self._tables

    def _loaded_files(self) -> LoadedFiles:
        from streaming_source.files.load_files import load_files

        if self._files is None:
            self._files = load_files(self.options)
        return self._files

    @spark_border()
    def reader(self, schema: StructType) -> BinlogFilesReader | PlannedReader:
        require_spark(spark_version)
        from streaming_source.options.source_options import names_files
        from streaming_source.source.batch.reader import BinlogFilesReader

        if not names_files(self.options):
            return self._server_reader(schema)
        files = self._loaded_files()
        plan = files.plan.project(schema)
        files.check(plan)
        self._handed_out = True
        return BinlogFilesReader(files.partitions, plan)

    def _server_reader(self, schema: StructType) -> PlannedReader:
        from streaming_source.options.source_options import SourceOptions
        from streaming_source.source.batch.server import end_at_load
        from streaming_source.source.batch.tables import TablesReader
        from streaming_source.source.load import load_plan

        options = SourceOptions.parse(self.options)
        if options.content == "tables":
            tables = self._loaded_tables(options).project(schema)
            self._handed_out = True
            return TablesReader(options, tables, self._load or uuid.uuid4().hex)
        if options.initial:
            raise ConfigError(
                "startingPosition=initial is for spark.readStream: spark.read reads the changes between two positions.",
                hint="Use spark.readStream; with trigger(availableNow=True) it ends when the tables are read, and all "
                "changes up to then.",
            )
        if self._plan is None:  # the user gave a schema, so Spark did not ask for this one
            self._plan = load_plan(self.options)
        latest = end_at_load(options) if self._latest is None else self._latest
        reader = self._range_of(options, self._plan, schema, latest)
        self._handed_out = True
        return reader

    def streamReader(self, schema: StructType) -> ChangeStreamReader | RefusedStream:  # noqa: N802  (Spark's name)
        try:
            return self._stream_reader(schema)
        except ReplicaError as error:
            from streaming_source.driver.refused_stream import RefusedStream

            return RefusedStream(error)

    @spark_border()
    def _stream_reader(self, schema: StructType) -> ChangeStreamReader:
        require_spark(spark_version)
        from streaming_source.options.source_options import SourceOptions, names_files

        if names_files(self.options):
            raise ConfigError(
                "spark.readStream follows a server, and path names binlog files: they are read with spark.read.",
                hint="Use spark.read, or remove path and set host.",
            )
        if self._plan is None:  # the user gave a schema, so Spark did not ask for this one
            from streaming_source.source.load import load_plan

            self._plan = load_plan(self.options)
        options = SourceOptions.parse(self.options)
        if options.content == "tables":
            raise ConfigError(
                "spark.readStream reads changes, and content=tables asks for the tables alone.",
                hint="Use startingPosition=initial: the rows of the tables first, then their changes.",
            )
        if options.ending_position is not None:
            raise ConfigError(
                "spark.readStream runs forever, and endingPosition would end it.",
                hint="Remove it. trigger(availableNow=True) reads up to the end of the binlog at the start of the "
                "query. Use spark.read for a range with an end.",
            )
        if options.push_filters:
            raise ConfigError(
                "pushFilters is for spark.read: Spark hands the conditions of a query to a batch read only.",
                hint="Remove it. operations, columns and skipUnchanged are applied before decoding in streams, too.",
            )
        reader = self._stream_of(options, self._plan, schema)
        self._handed_out = True
        return reader

    def _stream_of(self, options: SourceOptions, plan: ReadPlan, schema: StructType) -> ChangeStreamReader:
        from streaming_source.source.stream import ChangeStreamReader

        return ChangeStreamReader(options, plan.project(schema))

    def _range_of(self, options: SourceOptions, plan: ReadPlan, schema: StructType, latest: ServerEnd) -> PlannedReader:
        from streaming_source.source.batch.server import ServerRangeReader

        return ServerRangeReader(options, plan.project(schema), latest, self._load or uuid.uuid4().hex)

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the instance once for the processes on the driver. After it has asked for a reader, it pickles
        # the instance into the function that every task runs. Tasks never connect, so their copy has no options.
        state = dict(self.__dict__)
        if self._handed_out:
            state["options"] = {}
            state["_files"] = None
        return state

    def __repr__(self) -> str:
        return "MariaDbBinlogSource()"
