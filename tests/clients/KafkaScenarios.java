// Apache Kafka's own Java client: java KafkaScenarios BOOTSTRAP; each scenario prints its name and
// "ok", the first failure ends the program.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class KafkaScenarios {
  private static final long PATIENCE = 60_000;
  private static String bootstrap;
  private static Admin admin;

  interface Scenario {
    void run(String topic) throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[0];
    Map<String, Scenario> scenarios = new java.util.LinkedHashMap<>();
    scenarios.put("topics", KafkaScenarios::topics);
    scenarios.put("produce and consume", KafkaScenarios::produceAndConsume);
    scenarios.put("codecs", KafkaScenarios::codecs);
    scenarios.put("offsets", KafkaScenarios::offsets);
    scenarios.put("configs", KafkaScenarios::configs);
    scenarios.put("group", KafkaScenarios::group);
    scenarios.put("transactions", KafkaScenarios::transactions);
    scenarios.put("exactly once", KafkaScenarios::exactlyOnce);
    scenarios.put("fencing", KafkaScenarios::fencing);
    admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    int number = 0;
    for (Map.Entry<String, Scenario> scenario : scenarios.entrySet()) {
      if (arguments.length < 2 || List.of(arguments).contains(scenario.getKey())) {
        scenario.getValue().run("java-" + number++ + "-" + System.nanoTime());
        System.out.println(scenario.getKey() + " ok");
      }
    }
    admin.close(Duration.ofSeconds(5));
    System.exit(0);
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  // Apache Kafka itself, which these scenarios are tried against, tells its nodes a little later.
  private static void eventually(java.util.concurrent.Callable<Boolean> holds, String what) throws Exception {
    long limit = System.currentTimeMillis() + PATIENCE;
    while (!holds.call()) {
      check(System.currentTimeMillis() < limit, what);
      Thread.sleep(20);
    }
  }

  private static int partitions(String topic) throws Exception {
    return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static void create(String topic, int partitions) throws Exception {
    admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
  }

  private static KafkaProducer<byte[], byte[]> producer(String... settings) {
    Map<String, Object> all = new HashMap<>();
    all.put("bootstrap.servers", bootstrap);
    for (int i = 0; i < settings.length; i += 2) {
      all.put(settings[i], settings[i + 1]);
    }
    return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
  }

  private static KafkaConsumer<byte[], byte[]> consumer(String... settings) {
    Map<String, Object> all = new HashMap<>();
    all.put("bootstrap.servers", bootstrap);
    all.put("auto.offset.reset", "earliest");
    all.put("enable.auto.commit", "false");
    for (int i = 0; i < settings.length; i += 2) {
      all.put(settings[i], settings[i + 1]);
    }
    return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  private static List<ConsumerRecord<byte[], byte[]>> take(
      KafkaConsumer<byte[], byte[]> consumer, int count) {
    List<ConsumerRecord<byte[], byte[]>> taken = new ArrayList<>();
    long limit = System.currentTimeMillis() + PATIENCE;
    while (taken.size() < count) {
      check(System.currentTimeMillis() < limit, taken.size() + " records instead of " + count);
      consumer.poll(Duration.ofMillis(200)).forEach(taken::add);
    }
    check(taken.size() == count, taken.size() + " records, and " + count + " were sent");
    return taken;
  }

  private static List<TopicPartition> parts(String topic, int count) {
    List<TopicPartition> all = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      all.add(new TopicPartition(topic, i));
    }
    return all;
  }

  private static Throwable cause(java.util.concurrent.Callable<?> call) throws Exception {
    try {
      call.call();
    } catch (ExecutionException error) {
      return error.getCause();
    } catch (KafkaException error) {
      return error;
    }
    throw new AssertionError("that should have failed");
  }

  private static void topics(String topic) throws Exception {
    create(topic, 3);
    eventually(() -> admin.listTopics().names().get().contains(topic), "it isn't listed");
    TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    check(found.partitions().size() == 3, "partitions");
    check(found.partitions().get(0).leader().id() == found.partitions().get(2).leader().id(), "leader");
    check(cause(() -> admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get())
        instanceof TopicExistsException, "made twice");
    admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
    eventually(() -> partitions(topic) == 5, "more partitions");
    admin.deleteTopics(List.of(topic)).all().get();
    eventually(() -> !admin.listTopics().names().get().contains(topic), "it is still there");
    check(cause(() -> partitions(topic)) instanceof UnknownTopicOrPartitionException, "it is known");
    check(admin.describeCluster().nodes().get().size() == 1, "one node");
    check(admin.describeCluster().clusterId().get() != null, "a cluster's id");
  }

  private static void produceAndConsume(String topic) throws Exception {
    create(topic, 2);
    for (String acks : List.of("0", "1", "all")) {
      String idempotence = acks.equals("all") ? "true" : "false";
      try (KafkaProducer<byte[], byte[]> out = producer("acks", acks, "enable.idempotence", idempotence)) {
        for (int i = 0; i < 100; i++) {
          ProducerRecord<byte[], byte[]> record =
              new ProducerRecord<>(topic, i % 2, 1_700_000_000_000L + i, bytes("k" + i), bytes(acks + i));
          record.headers().add("from", bytes("java"));
          RecordMetadata sent = out.send(record).get();
          check(acks.equals("0") || sent.hasOffset(), "no offset");
        }
      }
    }
    try (KafkaConsumer<byte[], byte[]> in = consumer()) {
      in.assign(parts(topic, 2));
      List<ConsumerRecord<byte[], byte[]>> all = take(in, 300);
      Map<Integer, Long> next = new HashMap<>();
      for (ConsumerRecord<byte[], byte[]> record : all) {
        long wanted = next.getOrDefault(record.partition(), 0L);
        check(record.offset() == wanted, "offset " + record.offset() + ", not " + wanted);
        next.put(record.partition(), wanted + 1);
        check(new String(record.headers().lastHeader("from").value()).equals("java"), "header");
        check(record.timestamp() >= 1_700_000_000_000L && record.timestamp() < 1_700_000_000_100L, "time");
      }
    }
  }

  private static void codecs(String topic) throws Exception {
    create(topic, 1);
    List<String> codecs = List.of("none", "gzip", "snappy", "lz4", "zstd");
    for (String codec : codecs) {
      try (KafkaProducer<byte[], byte[]> out = producer("compression.type", codec, "linger.ms", "50")) {
        for (int i = 0; i < 200; i++) {
          out.send(new ProducerRecord<>(topic, bytes(codec + "-" + i + "-".repeat(100))));
        }
      }
    }
    try (KafkaConsumer<byte[], byte[]> in = consumer()) {
      in.assign(parts(topic, 1));
      List<ConsumerRecord<byte[], byte[]>> all = take(in, 1000);
      for (int i = 0; i < 1000; i++) {
        String wanted = codecs.get(i / 200) + "-" + i % 200 + "-";
        check(new String(all.get(i).value()).startsWith(wanted), wanted + " isn't at " + i);
      }
    }
  }

  private static void offsets(String topic) throws Exception {
    create(topic, 1);
    TopicPartition part = new TopicPartition(topic, 0);
    try (KafkaProducer<byte[], byte[]> out = producer()) {
      for (int i = 0; i < 10; i++) {
        out.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i * 1000, null, bytes("v" + i))).get();
      }
    }
    try (KafkaConsumer<byte[], byte[]> in = consumer()) {
      check(in.beginningOffsets(List.of(part)).get(part) == 0, "the start");
      check(in.endOffsets(List.of(part)).get(part) == 10, "the end");
      OffsetAndTimestamp found = in.offsetsForTimes(Map.of(part, 1_700_000_003_500L)).get(part);
      check(found.offset() == 4 && found.timestamp() == 1_700_000_004_000L, "by time: " + found);
      check(in.offsetsForTimes(Map.of(part, 1_900_000_000_000L)).get(part) == null, "no such time");
      in.assign(List.of(part));
      in.seek(part, 7);
      check(new String(take(in, 3).get(0).value()).equals("v7"), "sought");
    }
    ListOffsetsResult.ListOffsetsResultInfo newest =
        admin.listOffsets(Map.of(part, OffsetSpec.maxTimestamp())).partitionResult(part).get();
    check(newest.offset() == 9, "the newest: " + newest.offset());
    admin.deleteRecords(Map.of(part, RecordsToDelete.beforeOffset(5))).all().get();
    try (KafkaConsumer<byte[], byte[]> in = consumer()) {
      check(in.beginningOffsets(List.of(part)).get(part) == 5, "records are gone");
      in.assign(List.of(part));
      in.seek(part, 0);
      check(take(in, 5).get(0).offset() == 5, "out of range, back to the start");
    }
  }

  private static void configs(String topic) throws Exception {
    create(topic, 1);
    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
    Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
    check(config.get("cleanup.policy").value().equals("delete"), "a default");
    check(config.get("max.message.bytes").isDefault(), "it is one");
    admin.incrementalAlterConfigs(Map.of(resource, List.of(
        new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET),
        new AlterConfigOp(new ConfigEntry("max.message.bytes", "2000"), AlterConfigOp.OpType.SET)))).all().get();
    config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
    check(config.get("retention.ms").value().equals("3600000"), "it was set");
    try (KafkaProducer<byte[], byte[]> out = producer()) {
      Throwable error = cause(() -> out.send(new ProducerRecord<>(topic, new byte[5000])).get());
      check(error instanceof org.apache.kafka.common.errors.RecordTooLargeException, "too large: " + error);
      out.send(new ProducerRecord<>(topic, new byte[500])).get();
    }
    admin.incrementalAlterConfigs(Map.of(resource, List.of(
        new AlterConfigOp(new ConfigEntry("max.message.bytes", ""), AlterConfigOp.OpType.DELETE)))).all().get();
    config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
    check(config.get("max.message.bytes").isDefault(), "the default is back");
  }

  private static void group(String topic) throws Exception {
    create(topic, 4);
    try (KafkaProducer<byte[], byte[]> out = producer()) {
      for (int i = 0; i < 400; i++) {
        out.send(new ProducerRecord<>(topic, i % 4, null, bytes("" + i)));
      }
    }
    String id = "group-" + topic;
    for (String strategy : List.of("RangeAssignor", "CooperativeStickyAssignor")) {
      String[] settings = {
        "group.id", id + strategy, "session.timeout.ms", "10000",
        "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + strategy,
      };
      Set<String> seen = new HashSet<>();
      try (KafkaConsumer<byte[], byte[]> one = consumer(settings); KafkaConsumer<byte[], byte[]> two = consumer(settings)) {
        one.subscribe(List.of(topic));
        two.subscribe(List.of(topic));
        long limit = System.currentTimeMillis() + PATIENCE;
        while (one.assignment().size() != 2 || two.assignment().size() != 2) {
          check(System.currentTimeMillis() < limit, "no balance: " + one.assignment() + two.assignment());
          one.poll(Duration.ofMillis(50)).forEach(record -> seen.add(new String(record.value())));
          two.poll(Duration.ofMillis(50)).forEach(record -> seen.add(new String(record.value())));
        }
        Set<TopicPartition> both = new HashSet<>(one.assignment());
        both.addAll(two.assignment());
        check(both.size() == 4, "all partitions");
        for (KafkaConsumer<byte[], byte[]> each : List.of(one, two)) {
          while (each.assignment().stream().anyMatch(part -> each.position(part) < 100)) {
            check(System.currentTimeMillis() < limit, seen.size() + " of 400");
            one.poll(Duration.ofMillis(50)).forEach(record -> seen.add(new String(record.value())));
            two.poll(Duration.ofMillis(50)).forEach(record -> seen.add(new String(record.value())));
          }
        }
        check(seen.size() == 400, seen.size() + " of 400");
        one.commitSync();
        two.commitSync();
        check(admin.describeConsumerGroups(List.of(id + strategy)).all().get().get(id + strategy).members().size() == 2,
            "members");
      }
      Map<TopicPartition, OffsetAndMetadata> committed =
          admin.listConsumerGroupOffsets(id + strategy).partitionsToOffsetAndMetadata().get();
      for (TopicPartition part : parts(topic, 4)) {
        check(committed.get(part).offset() == 100, "committed: " + committed);
      }
    }
    check(admin.listGroups().all().get().stream().anyMatch(each -> each.groupId().startsWith(id)), "listed");
    admin.deleteConsumerGroups(List.of(id + "RangeAssignor")).all().get();
  }

  private static List<String> committed(String topic) {
    try (KafkaConsumer<byte[], byte[]> in = consumer("isolation.level", "read_committed")) {
      TopicPartition part = new TopicPartition(topic, 0);
      in.assign(List.of(part));
      List<String> found = new ArrayList<>();
      long end = in.endOffsets(List.of(part)).get(part);
      long limit = System.currentTimeMillis() + PATIENCE;
      while (in.position(part) < end) {
        check(System.currentTimeMillis() < limit, "stuck at " + in.position(part) + " of " + end);
        in.poll(Duration.ofMillis(100)).forEach(record -> found.add(new String(record.value())));
      }
      return found;
    }
  }

  private static void transactions(String topic) throws Exception {
    create(topic, 1);
    try (KafkaProducer<byte[], byte[]> out = producer("transactional.id", "tx-" + topic)) {
      out.initTransactions();
      out.beginTransaction();
      out.send(new ProducerRecord<>(topic, bytes("a1")));
      out.send(new ProducerRecord<>(topic, bytes("a2")));
      out.flush();
      check(committed(topic).isEmpty(), "seen before its commit");
      out.commitTransaction();
      out.beginTransaction();
      out.send(new ProducerRecord<>(topic, bytes("b")));
      out.flush();
      out.abortTransaction();
      out.beginTransaction();
      out.send(new ProducerRecord<>(topic, bytes("c")));
      out.commitTransaction();
    }
    List<String> found = committed(topic);
    check(found.equals(List.of("a1", "a2", "c")), "committed: " + found);
  }

  private static void exactlyOnce(String topic) throws Exception {
    String target = topic + "-out";
    create(topic, 1);
    create(target, 1);
    try (KafkaProducer<byte[], byte[]> fill = producer()) {
      for (int i = 0; i < 50; i++) {
        fill.send(new ProducerRecord<>(topic, bytes("" + i)));
      }
    }
    int crashes = 2;
    long limit = System.currentTimeMillis() + PATIENCE;
    TopicPartition part = new TopicPartition(topic, 0);
    for (long done = 0; done < 50;) {
      check(System.currentTimeMillis() < limit, done + " of 50");
      // Each life reads on from what is committed; two of them end in the middle of a transaction.
      try (KafkaConsumer<byte[], byte[]> in = consumer("group.id", "g-" + topic, "max.poll.records", "10",
               "isolation.level", "read_committed");
           KafkaProducer<byte[], byte[]> out = producer("transactional.id", "t-" + topic)) {
        out.initTransactions();
        in.subscribe(List.of(topic));
        while (done < 50) {
          check(System.currentTimeMillis() < limit, done + " of 50");
          var records = in.poll(Duration.ofMillis(200));
          if (records.isEmpty()) {
            continue;
          }
          out.beginTransaction();
          long next = 0;
          for (ConsumerRecord<byte[], byte[]> record : records) {
            out.send(new ProducerRecord<>(target, bytes("x" + new String(record.value()))));
            next = record.offset() + 1;
          }
          out.flush();
          if (crashes-- > 0) {
            break;
          }
          ConsumerGroupMetadata group = in.groupMetadata();
          out.sendOffsetsToTransaction(Map.of(part, new OffsetAndMetadata(next)), group);
          out.commitTransaction();
          done = next;
        }
      }
    }
    List<String> found = committed(target);
    List<String> wanted = new ArrayList<>();
    for (int i = 0; i < 50; i++) {
      wanted.add("x" + i);
    }
    check(found.equals(wanted), "exactly once: " + found);
  }

  private static void fencing(String topic) throws Exception {
    create(topic, 1);
    try (KafkaProducer<byte[], byte[]> old = producer("transactional.id", "f-" + topic)) {
      old.initTransactions();
      old.beginTransaction();
      old.send(new ProducerRecord<>(topic, bytes("old")));
      old.flush();
      try (KafkaProducer<byte[], byte[]> young = producer("transactional.id", "f-" + topic)) {
        young.initTransactions();
        young.beginTransaction();
        young.send(new ProducerRecord<>(topic, bytes("young")));
        young.commitTransaction();
      }
      Throwable error = cause(() -> {
        old.commitTransaction();
        return null;
      });
      check(error instanceof ProducerFencedException, "fenced: " + error);
    }
    check(committed(topic).equals(List.of("young")), "the old one's record is gone");
  }
}
