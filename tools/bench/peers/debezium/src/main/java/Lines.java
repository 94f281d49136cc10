import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.logging.LogManager;

/** Writes the change events of a server's binlog into a file, as lines of JSON, with Debezium's embedded engine. */
public final class Lines {
    private static final long MOST_MINUTES = 15;

    private final long skipped;
    private final long wanted;
    private final Path file;
    private final CountDownLatch done = new CountDownLatch(1);
    private volatile long rows;
    private volatile String failure;
    private volatile String told = "";
    private double startCpu;
    private long startWall;
    private BufferedWriter lines;

    private Lines(long skipped, long wanted, Path file) {
        this.skipped = skipped;
        this.wanted = wanted;
        this.file = file;
    }

    private static Properties settings(String[] args) {
        Properties settings = Embedded.settings(args);
        settings.setProperty("converter.schemas.enable", "false");
        settings.setProperty("decimal.handling.mode", "string");
        return settings;
    }

    private void took(ChangeEvent<String, String> event) throws Exception {
        if (rows == skipped) {
            startCpu = Embedded.cpuSeconds();
            startWall = System.nanoTime();
            lines = Files.newBufferedWriter(file);
        }
        rows++;
        if (rows > skipped) {
            lines.write(event.value());
            lines.newLine();
        }
        if (rows == skipped + wanted) {
            lines.close();
            told = String.format(Locale.ROOT, "{\"cpu\": %f, \"wall\": %f}", Embedded.cpuSeconds() - startCpu,
                (System.nanoTime() - startWall) / 1e9);
            done.countDown();
        }
    }

    private String read(Properties settings) throws Exception {
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(settings)
            .using((success, message, error) -> {
                failure = success ? null : message + ": " + error;
                done.countDown();
            })
            .notifying((batch, committer) -> {
                for (ChangeEvent<String, String> event : batch) {
                    if (done.getCount() > 0) {
                        try {
                            took(event);
                        } catch (Exception error) {
                            throw new IllegalStateException(error);
                        }
                    }
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
            })
            .build();
        Thread thread = new Thread(engine);
        thread.start();
        if (!done.await(MOST_MINUTES, TimeUnit.MINUTES) || failure != null) {
            throw new IllegalStateException(failure != null ? failure : rows + " rows, and no more come");
        }
        engine.close();
        thread.join();
        return told;
    }

    /** Arguments: host, port, user, password, rows to skip, rows to write, file. The second of two passes is told. */
    public static void main(String[] args) throws Exception {
        LogManager.getLogManager().reset();
        Properties settings = settings(args);
        String told = "";
        for (int pass = 0; pass < 2; pass++) {
            told = new Lines(Long.parseLong(args[4]), Long.parseLong(args[5]), Path.of(args[6])).read(settings);
        }
        System.out.println(told);
        System.exit(0);
    }
}
