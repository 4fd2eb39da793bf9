// Kafka Streams, exactly once: java StreamsCount PROPERTIES INPUT OUTPUT counts the records of each key of
// INPUT and writes every new count to OUTPUT, until its standard input ends.

import java.io.FileReader;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

public final class StreamsCount {
  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    try (FileReader file = new FileReader(arguments[0])) {
      settings.load(file);
    }
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
        .groupBy((key, value) -> value, Grouped.with(Serdes.String(), Serdes.String()))
        .count()
        .toStream()
        .mapValues(count -> Long.toString(count))
        .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.start();
    while (System.in.read() >= 0) {
    }
    streams.close(Duration.ofSeconds(10));
    System.exit(0);
  }
}
