import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The copy loop with the Java client: BOOTSTRAP COUNT SEED. Prints its progress; continues when a broker is killed. */
public final class Copy {
    private static final String NAME = "copy-java";

    private final String bootstrap;
    private final KafkaConsumer<String, String> consumer;
    private KafkaProducer<String, String> producer;

    private Copy(String bootstrap) {
        this.bootstrap = bootstrap;
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", NAME);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "25");
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        consumer = new KafkaConsumer<>(settings);
        producer = start();
    }

    private KafkaProducer<String, String> start() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", NAME);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        KafkaProducer<String, String> started = new KafkaProducer<>(settings);
        started.initTransactions();
        return started;
    }

    private long rewind() {
        long done = 0;
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition place : consumer.assignment()) {
            OffsetAndMetadata found = committed.get(place);
            long offset = found == null ? 0 : found.offset();
            consumer.seek(place, offset);
            done += offset;
        }
        return done;
    }

    private void copy(ConsumerRecords<String, String> records, boolean abort) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>("out", record.partition(), null, "copy of " + record.value()));
            ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        if (abort) {
            producer.abortTransaction();
            rewind();
            return;
        }
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        producer.commitTransaction();
    }

    private void run(long count, Random random) {
        consumer.subscribe(java.util.List.of("in"));
        long done = 0;
        while (done < count) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofSeconds(1));
            if (records.isEmpty()) {
                done = rewind();
                continue;
            }
            boolean abort = random.nextInt(4) == 0;
            try {
                copy(records, abort);
                done += abort ? 0 : records.count();
                System.out.println("progress " + done);
            } catch (KafkaException error) {
                System.err.println("once more after " + error);
                producer.close(Duration.ZERO);
                producer = start();
                rewind();
            }
        }
        producer.close();
        consumer.close();
    }

    public static void main(String[] arguments) {
        new Copy(arguments[0]).run(Long.parseLong(arguments[1]), new Random(Long.parseLong(arguments[2])));
        System.out.println("ok");
    }
}
