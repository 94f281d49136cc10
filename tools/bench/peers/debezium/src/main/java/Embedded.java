import com.sun.management.OperatingSystemMXBean;
import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.logging.LogManager;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/** Reads a server's binlog with Debezium's embedded engine: a change event, as Kafka Connect's structs, for each row. */
public final class Embedded {
    private static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final long QUIET_MS = 300;
    private static final long MOST_MINUTES = 5;

    private final long wanted;
    private final double seconds;
    private final CountDownLatch done = new CountDownLatch(1);
    private volatile long rows;
    private volatile long ended;
    private double startCpu;
    private long startWall;
    private volatile String failure;
    private String told = "";

    private Embedded(long wanted, double seconds) {
        this.wanted = wanted;
        this.seconds = seconds;
    }

    static double cpuSeconds() {
        return PROCESS.getProcessCpuTime() / 1e9;
    }

    private static Throwable rootOf(Throwable error) {
        return error == null || error.getCause() == null ? error : rootOf(error.getCause());
    }

    static Properties settings(String[] args) {
        Properties settings = new Properties();
        settings.setProperty("name", "bench");
        settings.setProperty("connector.class", "io.debezium.connector.mariadb.MariaDbConnector");
        settings.setProperty("database.hostname", args[0]);
        settings.setProperty("database.port", args[1]);
        settings.setProperty("database.user", args[2]);
        settings.setProperty("database.password", args[3]);
        settings.setProperty("database.server.id", "990007");
        settings.setProperty("database.ssl.mode", "disable");
        settings.setProperty("topic.prefix", "bench");
        settings.setProperty("database.include.list", "bench");
        settings.setProperty("snapshot.mode", "never"); // the first file has the DDL, the second one the rows
        settings.setProperty("tombstones.on.delete", "false");
        settings.setProperty("include.schema.changes", "false");
        settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        settings.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        return settings;
    }

    private void took(SourceRecord record) {
        if (record.value() instanceof Struct value && value.schema().field("op") != null) {
            rows++;
        }
        if (rows == wanted) {
            end();
        }
    }

    private void end() {
        if (done.getCount() > 0) {
            ended = rows;
            told = String.format(Locale.ROOT, "\"cpu\": %f, \"wall\": %f", cpuSeconds() - startCpu,
                (System.nanoTime() - startWall) / 1e9);
            done.countDown();
        }
    }

    private String read(Properties settings) throws Exception {
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
            DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                .using(settings)
                .using((success, message, error) -> {
                    failure = success ? null : message + ": " + rootOf(error);
                    done.countDown();
                })
                .using(new DebeziumEngine.ConnectorCallback() {
                    @Override
                    public void taskStarted() {
                        startCpu = cpuSeconds(); // the start of the engine is told apart
                        startWall = System.nanoTime();
                    }
                })
                .notifying((batch, committer) -> {
                    for (RecordChangeEvent<SourceRecord> event : batch) {
                        took(event.record());
                        committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                    if (cpuSeconds() - startCpu > seconds) {
                        end();
                    }
                })
                .build();
        Thread thread = new Thread(engine);
        thread.start();
        if (!done.await(MOST_MINUTES, TimeUnit.MINUTES) || failure != null) {
            throw new IllegalStateException(failure != null ? failure : rows + " rows, and no more come");
        }
        if (ended == wanted) {
            Thread.sleep(QUIET_MS);
            ended = rows; // rows that nobody asked for are counted, too
        }
        engine.close();
        thread.join();
        return String.format(Locale.ROOT, "{\"rows\": %d, %s}", ended, told);
    }

    /** Arguments: host, port, user, password, rows, CPU seconds after which a pass ends, passes. */
    public static void main(String[] args) throws Exception {
        LogManager.getLogManager().reset();
        Properties settings = settings(args);
        StringJoiner passes = new StringJoiner(", ", "[", "]");
        double start = cpuSeconds();
        for (int pass = 0; pass < Integer.parseInt(args[6]); pass++) {
            passes.add(new Embedded(Long.parseLong(args[4]), Double.parseDouble(args[5])).read(settings));
        }
        System.out.printf(Locale.ROOT, "{\"start_cpu\": %f, \"passes\": %s}%n", start, passes);
        System.exit(0);
    }
}
