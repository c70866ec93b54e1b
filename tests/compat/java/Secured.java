import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Logs in once for each line of standard input, and writes one line: "ok" or the name of the exception.
 *
 * <p>Lines: produce TOPIC SETTING..., consume TOPIC GROUP SETTING..., repeat TOPIC GROUP MS SETTING... The words are
 * separated by tabs, settings are NAME=VALUE.
 */
public final class Secured {
    private static final long LIMIT_MS = 30_000;
    private static final Duration POLL = Duration.ofMillis(100);

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(outcome(line.split("\t")));
        }
    }

    private static String outcome(String[] words) {
        try {
            return switch (words[0]) {
                case "produce" -> produce(words[1], settings(words, 2));
                case "consume" -> consume(words[1], words[2], settings(words, 3));
                case "repeat" -> repeat(words[1], words[2], Long.parseLong(words[3]), settings(words, 4));
                default -> throw new IllegalArgumentException(words[0]);
            };
        } catch (ExecutionException failure) {
            return failure.getCause().getClass().getSimpleName();
        } catch (Exception failure) {
            return failure.getClass().getSimpleName();
        }
    }

    private static String produce(String topic, Properties settings) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>(topic, "tea")).get();
        }
        return "ok";
    }

    private static String consume(String topic, String group, Properties settings) {
        settings.put("group.id", group);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            for (long end = System.currentTimeMillis() + LIMIT_MS; System.currentTimeMillis() < end; ) {
                if (!consumer.poll(POLL).isEmpty()) {
                    return "ok";
                }
            }
        }
        return "no record";
    }

    /** Writes and reads for some time, with one producer and one consumer. Returns the numbers of both. */
    private static String repeat(String topic, String group, long forMs, Properties settings) throws Exception {
        settings.put("group.id", group);
        int sent = 0;
        int read = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            // The first record waits for the login; the time starts behind it.
            producer.send(new ProducerRecord<>(topic, "tea")).get();
            sent++;
            long end = System.currentTimeMillis() + forMs;
            while (System.currentTimeMillis() < end || read < sent) {
                if (System.currentTimeMillis() < end) {
                    producer.send(new ProducerRecord<>(topic, "tea")).get();
                    sent++;
                }
                read += consumer.poll(Duration.ofMillis(5)).count();
                if (System.currentTimeMillis() > end + LIMIT_MS) {
                    break;
                }
            }
            consumer.commitSync();
            double failed = producer.metrics().entrySet().stream()
                    .filter(each -> each.getKey().name().equals("failed-reauthentication-total"))
                    .mapToDouble(each -> ((Number) each.getValue().metricValue()).doubleValue())
                    .sum();
            double renewed = producer.metrics().entrySet().stream()
                    .filter(each -> each.getKey().name().equals("successful-reauthentication-total"))
                    .mapToDouble(each -> ((Number) each.getValue().metricValue()).doubleValue())
                    .max()
                    .orElse(0);
            return sent + " " + read + " " + (int) renewed + " " + (int) failed;
        }
    }

    private static Properties settings(String[] words, int from) {
        Properties settings = new Properties();
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("auto.offset.reset", "earliest");
        for (String word : Arrays.asList(words).subList(from, words.length)) {
            int at = word.indexOf('=');
            settings.put(word.substring(0, at), word.substring(at + 1));
        }
        return settings;
    }
}
