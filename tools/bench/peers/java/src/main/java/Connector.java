import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.EventHeaderV4;
import com.github.shyiko.mysql.binlog.event.EventType;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.network.SSLMode;
import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.StringJoiner;

/** Reads a part of a server's binlog with mysql-binlog-connector-java, which builds the values of all columns. */
public final class Connector {
    private static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private static double cpuSeconds() {
        return PROCESS.getProcessCpuTime() / 1e9;
    }

    private static String read(String host, int port, String user, String password, String file, long end)
        throws IOException {
        double cpu = cpuSeconds();
        long wall = System.nanoTime();
        long[] rows = {0};
        BinaryLogClient client = new BinaryLogClient(host, port, user, password);
        client.setServerId(990_006);
        client.setSSLMode(SSLMode.DISABLED);
        client.setKeepAlive(false);
        client.setBinlogFilename(file);
        client.setBinlogPosition(4);
        client.registerEventListener(event -> {
            EventData data = event.getData();
            if (data instanceof WriteRowsEventData written) {
                rows[0] += written.getRows().size();
            } else if (data instanceof UpdateRowsEventData updated) {
                rows[0] += updated.getRows().size();
            } else if (data instanceof DeleteRowsEventData deleted) {
                rows[0] += deleted.getRows().size();
            }
            EventHeaderV4 header = event.getHeader();
            if (header.getEventType() != EventType.FORMAT_DESCRIPTION && header.getNextPosition() >= end) {
                try {
                    client.disconnect();
                } catch (IOException error) {
                    throw new IllegalStateException(error);
                }
            }
        });
        client.connect();
        return String.format(java.util.Locale.ROOT, "{\"rows\": %d, \"cpu\": %f, \"wall\": %f}", rows[0],
            cpuSeconds() - cpu, (System.nanoTime() - wall) / 1e9);
    }

    /** Arguments: host, port, user, password, file, end, passes. */
    public static void main(String[] args) throws IOException {
        double start = cpuSeconds();
        java.util.logging.LogManager.getLogManager().reset();
        StringJoiner passes = new StringJoiner(", ", "[", "]");
        for (int pass = 0; pass < Integer.parseInt(args[6]); pass++) {
            passes.add(read(args[0], Integer.parseInt(args[1]), args[2], args[3], args[4], Long.parseLong(args[5])));
        }
        System.out.printf(java.util.Locale.ROOT, "{\"start_cpu\": %f, \"passes\": %s}%n", start, passes);
    }
}
