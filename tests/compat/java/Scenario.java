import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Runs one scenario: Scenario BOOTSTRAP NAME [protocol]. Prints "ok" at the end, or fails with the cause. */
public final class Scenario {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long LIMIT_MS = 60_000;

    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        switch (arguments[1]) {
            case "admin" -> admin();
            case "codecs" -> codecs();
            case "group" -> group(arguments[2]);
            case "transactions" -> transactions();
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        System.out.println("ok");
    }

    private static void admin() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic("java-admin", 2, (short) 1))).all().get();
            check(admin.describeCluster().nodes().get().size() == 1, "one node");
            check(admin.listTopics().names().get().contains("java-admin"), "topic is listed");
            check(describe(admin, "java-admin") == 2, "two partitions");
            admin.createPartitions(Map.of("java-admin", NewPartitions.increaseTo(4))).all().get();
            check(describe(admin, "java-admin") == 4, "four partitions");
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, "java-admin");
            AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "12345"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            check(config.get("retention.ms").value().equals("12345"), "setting is changed");
            check(config.get("cleanup.policy").isDefault(), "default is known as one");
            deleteRecords(admin);
            admin.deleteTopics(List.of("java-admin")).all().get();
            check(!admin.listTopics().names().get().contains("java-admin"), "topic is gone");
        }
    }

    private static int describe(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
    }

    private static void deleteRecords(Admin admin) throws Exception {
        TopicPartition place = new TopicPartition("java-admin", 0);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing(Map.of()))) {
            for (int index = 0; index < 10; index++) {
                producer.send(new ProducerRecord<>(place.topic(), 0, null, "v" + index)).get();
            }
        }
        admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(4))).all().get();
        check(admin.listOffsets(Map.of(place, OffsetSpec.earliest())).all().get().get(place).offset() == 4, "start moved");
        check(admin.listOffsets(Map.of(place, OffsetSpec.latest())).all().get().get(place).offset() == 10, "end stays");
        check(admin.listOffsets(Map.of(place, OffsetSpec.maxTimestamp())).all().get().get(place).offset() == 9, "newest");
    }

    private static void codecs() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = "java-codec-" + codec;
            Map<String, Object> more = Map.of("compression.type", codec, "linger.ms", 20);
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing(more))) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int index = 0; index < 500; index++) {
                    ProducerRecord<String, String> record = new ProducerRecord<>(topic, "k" + index, "value " + index);
                    record.headers().add("trace", new byte[] {1, 2});
                    sent.add(producer.send(record));
                }
                for (Future<RecordMetadata> future : sent) {
                    future.get(60, TimeUnit.SECONDS);
                }
            }
            List<ConsumerRecord<String, String>> seen = read(topic, 500, "read_uncommitted");
            for (int index = 0; index < 500; index++) {
                check(seen.get(index).value().equals("value " + index), codec + " value " + index);
                check(seen.get(index).headers().lastHeader("trace").value()[1] == 2, codec + " header");
            }
        }
    }

    private static void group(String protocol) throws Exception {
        String topic = "java-group-" + protocol;
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, 4, (short) 1))).all().get();
        }
        fill(topic, 400);
        Map<Integer, String> seen = new TreeMap<>();
        try (KafkaConsumer<String, String> first = member(topic, protocol);
                KafkaConsumer<String, String> second = member(topic, protocol)) {
            long deadline = System.currentTimeMillis() + LIMIT_MS;
            // A member that gets a partition late reads it from the start, so compare the positions of both.
            while (first.assignment().size() != 2
                    || second.assignment().size() != 2
                    || positions(first) + positions(second) < 400) {
                check(System.currentTimeMillis() < deadline, "two members share four partitions; seen " + seen.size());
                collect(first, seen);
                collect(second, seen);
            }
            first.commitSync();
            second.commitSync();
        }
        fill(topic, 10);
        try (KafkaConsumer<String, String> later = member(topic, protocol)) {
            Map<Integer, String> again = new TreeMap<>();
            long deadline = System.currentTimeMillis() + LIMIT_MS;
            while (again.size() < 10) {
                check(System.currentTimeMillis() < deadline, "resumes; seen " + again.size());
                collect(later, again);
            }
            later.commitSync();
            check(again.size() == 10, "resumes after what was committed, saw " + again.size());
        }
        try (Admin admin = Admin.create(settings())) {
            String group = "java-" + protocol;
            Map<TopicPartition, OffsetAndMetadata> offsets =
                    admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            check(offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum() == 410, "410 are committed");
            check(admin.describeConsumerGroups(List.of(group)).all().get().containsKey(group), "group is described");
            admin.deleteConsumerGroups(List.of(group)).all().get();
        }
    }

    private static long positions(KafkaConsumer<String, String> consumer) {
        return consumer.assignment().stream().mapToLong(consumer::position).sum();
    }

    private static KafkaConsumer<String, String> member(String topic, String protocol) {
        Map<String, Object> more = new HashMap<>(Map.of("group.id", "java-" + protocol, "enable.auto.commit", "false"));
        if (protocol.equals("consumer")) {
            more.put("group.protocol", "consumer");
        } else if (protocol.equals("cooperative")) {
            more.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming(more));
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private static void collect(KafkaConsumer<String, String> consumer, Map<Integer, String> seen) {
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
            seen.put(record.partition() * 1_000_000 + (int) record.offset(), record.value());
        }
    }

    private static void fill(String topic, int count) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing(Map.of()))) {
            for (int index = 0; index < count; index++) {
                producer.send(new ProducerRecord<>(topic, "k" + index, "v" + index));
            }
            producer.flush();
        }
    }

    private static void transactions() throws Exception {
        fill("java-txn-in", 20);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing(Map.of("transactional.id", "java-txn")));
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                        consuming(Map.of("group.id", "java-txn", "enable.auto.commit", "false")))) {
            producer.initTransactions();
            consumer.subscribe(List.of("java-txn-in"));
            int copied = 0;
            long deadline = System.currentTimeMillis() + LIMIT_MS;
            while (copied < 20) {
                check(System.currentTimeMillis() < deadline, "copied " + copied);
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                consumer.poll(POLL).forEach(records::add);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("java-txn-out", "aborted"));
                producer.flush();
                producer.abortTransaction();
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>("java-txn-out", "copy of " + record.value()));
                    next.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                producer.commitTransaction();
                copied += records.size();
            }
            check(consumer.committed(consumer.assignment()).values().iterator().next().offset() == 20, "offsets are committed");
            fence(producer);
        }
        List<ConsumerRecord<String, String>> seen = read("java-txn-out", 20, "read_committed");
        for (int index = 0; index < 20; index++) {
            check(seen.get(index).value().equals("copy of v" + index), "committed only: " + seen.get(index).value());
        }
    }

    private static void fence(KafkaProducer<String, String> zombie) throws Exception {
        try (KafkaProducer<String, String> heir = new KafkaProducer<>(producing(Map.of("transactional.id", "java-txn")))) {
            heir.initTransactions();
            try {
                zombie.beginTransaction();
                zombie.send(new ProducerRecord<>("java-txn-out", "zombie"));
                zombie.commitTransaction();
                throw new AssertionError("the zombie was not fenced");
            } catch (ProducerFencedException | org.apache.kafka.common.errors.InvalidProducerEpochException expected) {
                System.out.println("fenced: " + expected.getClass().getSimpleName());
            }
        }
    }

    private static List<ConsumerRecord<String, String>> read(String topic, int count, String isolation) {
        Map<String, Object> more = Map.of("isolation.level", isolation, "enable.auto.commit", "false");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming(more))) {
            Collection<TopicPartition> place = Set.of(new TopicPartition(topic, 0));
            consumer.assign(place);
            consumer.seekToBeginning(place);
            List<ConsumerRecord<String, String>> seen = new ArrayList<>();
            long deadline = System.currentTimeMillis() + LIMIT_MS;
            while (seen.size() < count) {
                check(System.currentTimeMillis() < deadline, "read " + seen.size() + " of " + count);
                consumer.poll(POLL).forEach(seen::add);
            }
            check(seen.size() == count, "no more than " + count + ", got " + seen.size());
            return seen;
        }
    }

    private static Properties settings() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    private static Properties producing(Map<String, Object> more) {
        Properties properties = settings();
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        properties.putAll(more);
        return properties;
    }

    private static Properties consuming(Map<String, Object> more) {
        Properties properties = settings();
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.put("auto.offset.reset", "earliest");
        properties.putAll(more);
        return properties;
    }

    private static void check(boolean fine, String what) {
        if (!fine) {
            throw new AssertionError(what);
        }
    }
}
