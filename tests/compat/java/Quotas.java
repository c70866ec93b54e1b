import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The admin client sets quotas, and the clients are told how long to wait. */
public final class Quotas {
    private static final ClientQuotaEntity PRODUCER =
        new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "loud"));
    private static final ClientQuotaEntity CREATOR =
        new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "creator"));

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(settings(arguments[0], "admin"))) {
            set(admin, PRODUCER, "producer_byte_rate", 20_000.0, false);
            set(admin, CREATOR, "controller_mutation_rate", 1.0, false);
            check(described(admin).equals(Map.of("producer_byte_rate", 20_000.0)), "described: " + described(admin));
            refuse(admin);
            produce(arguments[0]);
            create(arguments[0]);
            set(admin, PRODUCER, "producer_byte_rate", null, true);
            check(described(admin).equals(Map.of("producer_byte_rate", 20_000.0)), "a check has changed something");
            set(admin, PRODUCER, "producer_byte_rate", null, false);
            check(described(admin) == null, "the quota is still there");
        }
        System.out.println("ok");
    }

    private static void set(Admin admin, ClientQuotaEntity entity, String key, Double value, boolean only)
            throws Exception {
        var change = new ClientQuotaAlteration(entity, Set.of(new ClientQuotaAlteration.Op(key, value)));
        admin.alterClientQuotas(List.of(change), new AlterClientQuotasOptions().validateOnly(only)).all().get();
    }

    private static Map<String, Double> described(Admin admin) throws Exception {
        var part = ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, "loud");
        return admin.describeClientQuotas(ClientQuotaFilter.containsOnly(List.of(part))).entities().get().get(PRODUCER);
    }

    private static void refuse(Admin admin) throws Exception {
        try {
            set(admin, PRODUCER, "producer_byte_rate", -1.0, false);
            throw new IllegalStateException("a negative quota was accepted");
        } catch (java.util.concurrent.ExecutionException error) {
            check(error.getCause() instanceof InvalidRequestException, "wrong error: " + error.getCause());
        }
    }

    private static void produce(String bootstrap) throws Exception {
        Properties settings = settings(bootstrap, "loud");
        settings.put("linger.ms", "0");
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<byte[], byte[]>(settings, bytes, bytes)) {
            for (int number = 0; number < 6; number++) {
                producer.send(new ProducerRecord<>("quotas", new byte[10_000])).get();
            }
            double waited = producer.metrics().values().stream()
                .filter(each -> each.metricName().name().equals("produce-throttle-time-max"))
                .mapToDouble(each -> (Double) each.metricValue()).max().orElse(0);
            check(waited > 0, "the producer was not told to wait");
        }
    }

    private static void create(String bootstrap) throws Exception {
        var options = new CreateTopicsOptions().retryOnQuotaViolation(false);
        try (Admin creator = Admin.create(settings(bootstrap, "creator"))) {
            creator.createTopics(List.of(new NewTopic("first", 3, (short) 1)), options).all().get();
            creator.createTopics(List.of(new NewTopic("second", 3, (short) 1)), options).all().get();
            throw new IllegalStateException("topics above the quota were created");
        } catch (java.util.concurrent.ExecutionException error) {
            check(error.getCause() instanceof ThrottlingQuotaExceededException, "wrong error: " + error.getCause());
            check(((ThrottlingQuotaExceededException) error.getCause()).throttleTimeMs() > 0, "without a time to wait");
        }
    }

    private static Properties settings(String bootstrap, String client) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", client);
        return settings;
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }
}
