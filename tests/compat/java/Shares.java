import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Runs one scenario of share groups: Shares BOOTSTRAP NAME. Prints "ok" at the end, or fails with the cause. */
public final class Shares {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long LIMIT_MS = 60_000;
    private static final int RECORDS = 60;

    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        switch (arguments[1]) {
            case "explicit" -> explicit("record_limit".equals(arguments[2]) ? arguments[2] : "batch_optimized");
            case "admin" -> admin();
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        System.out.println("ok");
    }

    private static void explicit(String mode) throws Exception {
        String name = "java-" + mode;
        prepare(name);
        Map<String, Integer> seen = new HashMap<>();
        int deliveries = 0;
        try (KafkaShareConsumer<String, String> consumer = consumer(name, "explicit", mode)) {
            consumer.subscribe(List.of(name));
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (deliveries < RECORDS + RECORDS / 10) {
                check(System.currentTimeMillis() < end, "all records come, after " + deliveries);
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    deliveries++;
                    int count = seen.merge(record.value(), 1, Integer::sum);
                    check(record.deliveryCount().get() == count, "delivery " + record.deliveryCount() + " of " + count);
                    boolean released = record.value().endsWith("3") && count == 1;
                    consumer.acknowledge(record, released ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                }
                consumer.commitSync().values().forEach(error -> check(error.isEmpty(), "committed: " + error));
            }
        }
        check(seen.size() == RECORDS, "every record came");
        for (Map.Entry<String, Integer> each : seen.entrySet()) {
            check(each.getValue() == (each.getKey().endsWith("3") ? 2 : 1), each.getKey() + " came " + each.getValue());
        }
    }

    private static void admin() throws Exception {
        String name = "java-shared";
        prepare(name);
        try (Admin admin = Admin.create(settings())) {
            try (KafkaShareConsumer<String, String> first = consumer(name, "implicit", "batch_optimized");
                    KafkaShareConsumer<String, String> second = consumer(name, "implicit", "batch_optimized")) {
                first.subscribe(List.of(name));
                second.subscribe(List.of(name));
                Set<String> seen = new HashSet<>();
                long end = System.currentTimeMillis() + LIMIT_MS;
                while (seen.size() < RECORDS) {
                    check(System.currentTimeMillis() < end, "all records come, after " + seen.size());
                    first.poll(POLL).forEach(record -> check(seen.add(record.value()), "once"));
                    second.poll(POLL).forEach(record -> check(seen.add(record.value()), "once"));
                }
                first.commitSync();
                second.commitSync();
                ShareGroupDescription group = described(admin, name);
                check(group.groupState() == GroupState.STABLE, "stable");
                check(group.members().size() == 2, "two members");
                group.members().forEach(each -> check(each.assignment().topicPartitions().size() == 1, "assigned"));
            }
            check(admin.listGroups().all().get().stream().anyMatch(each -> each.groupId().equals(name)
                    && each.type().get().toString().equals("Share")), "listed");
            check(described(admin, name).groupState() == GroupState.EMPTY, "empty");
            TopicPartition place = new TopicPartition(name, 0);
            check(offset(admin, name, place) == RECORDS, "everything is done: " + offset(admin, name, place));
            admin.alterShareGroupOffsets(name, Map.of(place, 10L)).all().get();
            check(offset(admin, name, place) == 10, "reset");
            try (KafkaShareConsumer<String, String> again = consumer(name, "implicit", "batch_optimized")) {
                again.subscribe(List.of(name));
                Set<Long> offsets = new HashSet<>();
                long end = System.currentTimeMillis() + LIMIT_MS;
                while (offsets.size() < RECORDS - 10) {
                    check(System.currentTimeMillis() < end, "the rest comes again, after " + offsets.size());
                    again.poll(POLL).forEach(record -> offsets.add(record.offset()));
                }
                check(!offsets.contains(9L), "nothing before the reset offset");
                try {
                    admin.alterShareGroupOffsets(name, Map.of(place, 0L)).all().get();
                    check(false, "a group with members is not reset");
                } catch (ExecutionException refused) {
                    check(refused.getCause() instanceof GroupNotEmptyException, "not empty: " + refused.getCause());
                }
            }
            admin.deleteShareGroupOffsets(name, Set.of(name)).all().get();
            admin.deleteShareGroups(List.of(name)).all().get();
            check(admin.listGroups().all().get().stream().noneMatch(each -> each.groupId().equals(name)), "deleted");
        }
        try (KafkaShareConsumer<String, String> again = consumer(name, "implicit", "batch_optimized")) {
            again.subscribe(List.of(name));
            Set<String> seen = new HashSet<>();
            long end = System.currentTimeMillis() + LIMIT_MS;
            while (seen.size() < RECORDS) {
                check(System.currentTimeMillis() < end, "a new group reads from the start, after " + seen.size());
                again.poll(POLL).forEach(record -> seen.add(record.value()));
            }
        }
    }

    private static long offset(Admin admin, String group, TopicPartition place) throws Exception {
        ListShareGroupOffsetsSpec every = new ListShareGroupOffsetsSpec();
        return admin.listShareGroupOffsets(Map.of(group, every)).partitionsToOffsetInfo(group).get().get(place)
                .startOffset();
    }

    private static ShareGroupDescription described(Admin admin, String group) throws Exception {
        return admin.describeShareGroups(List.of(group)).all().get().get(group);
    }

    private static void prepare(String name) throws Exception {
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name);
            ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET))))
                    .all().get();
        }
        Properties properties = settings();
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(name, "v" + number)).get();
            }
        }
    }

    private static KafkaShareConsumer<String, String> consumer(String group, String acknowledging, String mode) {
        Properties properties = settings();
        properties.put("group.id", group);
        properties.put("share.acknowledgement.mode", acknowledging);
        properties.put("share.acquire.mode", mode);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        return new KafkaShareConsumer<>(properties);
    }

    private static Properties settings() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
