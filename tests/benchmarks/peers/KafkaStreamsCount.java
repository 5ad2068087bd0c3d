// Keyed count on Kafka Streams, tuned as well as we could: see RESULTS.md for what was tried.
// Arguments: BOOTSTRAP APPLICATION IN OUT RECORDS STATE_DIR count|hop at_least_once|exactly_once_v2 CACHE_BYTES

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

public class KafkaStreamsCount {
    static final long COMMIT_MS = 100;
    static final ObjectMapper JSON = new ObjectMapper();
    static final OperatingSystemMXBean CLOCK =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    static volatile long seen = 0;

    public static void main(String[] args) throws Exception {
        boolean hop = args[6].equals("hop");
        long records = Long.parseLong(args[4]);
        KafkaStreams streams = new KafkaStreams(topology(args, hop).build(), settings(args));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(20));
            Runtime.getRuntime().halt(0);
        }));
        streams.start();
        if (hop) {
            Thread.sleep(Long.MAX_VALUE);  // serves until it is told to stop
        }
        waitFor(1);
        mark("first");
        waitFor(records / 2);
        mark("warm");
        waitFor(records);
        Thread.sleep(COMMIT_MS + 250);  // the last commit, with time to spare; idle
        mark("last");
        System.exit(0);
    }

    static StreamsBuilder topology(String[] args, boolean hop) {
        Serde<String> text = Serdes.String();
        Serde<JsonNode> json = Serdes.serdeFrom(encoder(), decoder());
        Materialized<String, Long, KeyValueStore<Bytes, byte[]>> store =
            Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("cnt")
                .withKeySerde(text).withValueSerde(Serdes.Long());
        if (args[8].equals("0")) {
            store = store.withCachingDisabled();
        }
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, JsonNode> hits =
            builder.stream(args[2], Consumed.with(text, json)).peek((key, value) -> seen = seen + 1);
        if (hop) {
            hits = hits.selectKey((key, value) -> value.get("user").asText());
        }
        hits.groupByKey(Grouped.with(text, json)).count(store).toStream()
            .mapValues(count -> (JsonNode) JSON.createObjectNode().put("c", count))
            .to(args[3], Produced.with(text, json));
        return builder;
    }

    static Properties settings(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[1]);
        settings.put("state.dir", args[5]);
        settings.put("processing.guarantee", args[7]);
        settings.put("statestore.cache.max.bytes", args[8]);
        settings.put("commit.interval.ms", Long.toString(COMMIT_MS));
        settings.put("num.stream.threads", "1");
        settings.put("replication.factor", "1");
        settings.put("buffered.records.per.partition", "5000");
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), "5000");
        settings.put(StreamsConfig.consumerPrefix("max.partition.fetch.bytes"), "8388608");
        settings.put(StreamsConfig.consumerPrefix("fetch.max.wait.ms"), "10");
        settings.put(StreamsConfig.producerPrefix("batch.size"), "262144");
        settings.put(StreamsConfig.producerPrefix("linger.ms"), args[6].equals("hop") ? "5" : "100");
        settings.put(StreamsConfig.producerPrefix("buffer.memory"), "67108864");
        return settings;
    }

    static Serializer<JsonNode> encoder() {
        return (topic, value) -> {
            try {
                return value == null ? null : JSON.writeValueAsBytes(value);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
    }

    static Deserializer<JsonNode> decoder() {
        return (topic, bytes) -> {
            try {
                return bytes == null ? null : JSON.readTree(bytes);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
    }

    static void waitFor(long records) throws InterruptedException {
        while (seen < records) {
            Thread.sleep(2);
        }
    }

    /** Says that a point was reached, as clock.py does; the wall clock is the machine's monotonic one. */
    static void mark(String name) {
        System.out.printf(
            Locale.ROOT, "{\"mark\":\"%s\",\"cpu_s\":%.6f,\"wall_s\":%.6f,\"seen\":%d}%n",
            name, CLOCK.getProcessCpuTime() / 1e9, System.nanoTime() / 1e9, seen);
        System.out.flush();
    }
}
