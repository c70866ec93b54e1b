import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A resource manager and a node manager in one process; `java -cp ... Yarn.java FOLDER` writes their settings there. */
public class Yarn {
    public static void main(String[] words) throws Exception {
        Configuration settings = new YarnConfiguration();
        settings.set("fs.defaultFS", "file:///");
        settings.set("yarn.resourcemanager.bind-host", "127.0.0.1");
        settings.set("yarn.nodemanager.bind-host", "127.0.0.1");
        settings.setInt("yarn.scheduler.minimum-allocation-mb", 256);
        settings.setInt("yarn.nodemanager.resource.memory-mb", 6144);
        settings.setInt("yarn.nodemanager.resource.cpu-vcores", 8);
        settings.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        // Ignore a nearly full disk, because the tests do not cover it.
        settings.setFloat("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", 100.0f);
        settings.set("yarn.scheduler.capacity.root.queues", "default");
        settings.set("yarn.scheduler.capacity.root.default.capacity", "100");
        settings.setFloat("yarn.scheduler.capacity.maximum-am-resource-percent", 0.9f);
        try (MiniYARNCluster cluster = new MiniYARNCluster("tidemill", 1, 1, 1)) {
            cluster.init(settings);
            cluster.start();
            try (OutputStream out = new FileOutputStream(words[0] + "/yarn-site.xml")) {
                cluster.getConfig().writeXml(out);
            }
            Configuration core = new Configuration(false);
            core.set("fs.defaultFS", "file:///");
            try (OutputStream out = new FileOutputStream(words[0] + "/core-site.xml")) {
                core.writeXml(out);
            }
            System.out.println("ready");
            System.in.read();
        }
    }
}
