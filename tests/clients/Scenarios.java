// The Java client (com.rabbitmq:amqp-client): java Scenarios URL; each scenario prints its name
// and "ok", the first failure ends the program. "cut" asks the test to cut the wire.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public final class Scenarios {
  private static final long PATIENCE = 20_000;

  interface Scenario {
    void run(Connection connection) throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    ConnectionFactory factory = new ConnectionFactory();
    factory.setUri(arguments[0]);
    factory.setNetworkRecoveryInterval(200);
    Map<String, Scenario> scenarios = new java.util.LinkedHashMap<>();
    scenarios.put("publish and consume", Scenarios::publishAndConsume);
    scenarios.put("confirm", Scenarios::confirm);
    scenarios.put("return", Scenarios::returned);
    scenarios.put("nack and requeue", Scenarios::nackAndRequeue);
    scenarios.put("priority", Scenarios::priority);
    scenarios.put("dead letters", Scenarios::deadLetters);
    scenarios.put("tx", Scenarios::tx);
    scenarios.put("errors", Scenarios::errors);
    scenarios.put("direct reply-to", Scenarios::directReplyTo);
    scenarios.put("stream", Scenarios::stream);
    scenarios.put("reconnect", Scenarios::reconnect);
    for (Map.Entry<String, Scenario> scenario : scenarios.entrySet()) {
      try (Connection connection = factory.newConnection()) {
        scenario.getValue().run(connection);
      }
      System.out.println(scenario.getKey() + " ok");
    }
    System.exit(0);
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  private static byte[] bytes(Object value) {
    return value.toString().getBytes();
  }

  private static String declare(Channel channel, Object... pairs) throws IOException {
    Map<String, Object> arguments = new HashMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      arguments.put((String) pairs[i], pairs[i + 1]);
    }
    return channel.queueDeclare("", false, true, true, arguments).getQueue();
  }

  private static GetResponse mustGet(Channel channel, String queue, boolean autoAck)
      throws Exception {
    long limit = System.currentTimeMillis() + PATIENCE;
    while (System.currentTimeMillis() < limit) {
      GetResponse message = channel.basicGet(queue, autoAck);
      if (message != null) {
        return message;
      }
      Thread.sleep(10);
    }
    throw new AssertionError("nothing came to " + queue);
  }

  private static void publishAndConsume(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    String queue = declare(channel);
    channel.basicQos(10);
    BlockingQueue<Delivery> inbox = new LinkedBlockingQueue<>();
    channel.basicConsume(queue, false, (tag, message) -> {
      channel.basicAck(message.getEnvelope().getDeliveryTag(), false);
      inbox.add(message);
    }, tag -> { });
    AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
        .contentType("text/plain").headers(Map.of("number", 42L)).build();
    for (int n = 0; n < 100; n++) {
      channel.basicPublish("", queue, properties, bytes(n));
    }
    for (int n = 0; n < 100; n++) {
      Delivery message = inbox.poll(PATIENCE, TimeUnit.MILLISECONDS);
      check(message != null, "message " + n + " did not come");
      check(new String(message.getBody()).equals("" + n), "out of order at " + n);
      check(message.getProperties().getHeaders().get("number").equals(42L), "headers");
    }
  }

  private static void confirm(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    channel.confirmSelect();
    String roomy = declare(channel);
    for (int n = 0; n < 100; n++) {
      channel.basicPublish("", roomy, null, bytes(n));
    }
    channel.waitForConfirmsOrDie(PATIENCE);
    String full = declare(channel, "x-max-length", 1, "x-overflow", "reject-publish");
    channel.basicPublish("", full, null, bytes("fits"));
    check(channel.waitForConfirms(PATIENCE), "refused though there was room");
    channel.basicPublish("", full, null, bytes("does not"));
    check(!channel.waitForConfirms(PATIENCE), "confirmed though full");
  }

  private static void returned(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    BlockingQueue<Integer> codes = new LinkedBlockingQueue<>();
    channel.addReturnListener(back -> codes.add(back.getReplyCode()));
    channel.basicPublish("", "nobody", true, null, bytes("back"));
    Integer code = codes.poll(PATIENCE, TimeUnit.MILLISECONDS);
    check(code != null && code == 312, "returned with " + code);
  }

  private static void nackAndRequeue(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    String queue = declare(channel);
    channel.basicPublish("", queue, null, bytes("x"));
    GetResponse first = mustGet(channel, queue, false);
    check(!first.getEnvelope().isRedeliver(), "redelivered at first");
    channel.basicNack(first.getEnvelope().getDeliveryTag(), false, true);
    GetResponse again = mustGet(channel, queue, false);
    check(again.getEnvelope().isRedeliver(), "not redelivered");
    channel.basicReject(again.getEnvelope().getDeliveryTag(), false);
    check(channel.messageCount(queue) == 0, "still there");
  }

  private static void priority(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    channel.confirmSelect();
    String queue = declare(channel, "x-max-priority", 5);
    for (int priority : new int[] {1, 5, 3}) {
      channel.basicPublish("", queue,
          new AMQP.BasicProperties.Builder().priority(priority).build(), bytes(priority));
    }
    channel.waitForConfirmsOrDie(PATIENCE);
    List<String> got = new ArrayList<>();
    for (int n = 0; n < 3; n++) {
      got.add(new String(mustGet(channel, queue, true).getBody()));
    }
    check(got.equals(List.of("5", "3", "1")), got.toString());
  }

  @SuppressWarnings("unchecked")
  private static void deadLetters(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    String grave = declare(channel);
    String queue = declare(channel, "x-dead-letter-exchange", "",
        "x-dead-letter-routing-key", grave, "x-message-ttl", 30);
    channel.basicPublish("", queue, null, bytes("brief"));
    GetResponse dead = mustGet(channel, grave, true);
    List<Map<String, Object>> deaths =
        (List<Map<String, Object>>) dead.getProps().getHeaders().get("x-death");
    check(deaths.get(0).get("reason").toString().equals("expired"), "reason");
    check(deaths.get(0).get("count").equals(1L), "count");
    check(deaths.get(0).get("queue").toString().equals(queue), "queue");
  }

  private static void tx(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    Channel other = connection.createChannel();
    String queue = declare(other);
    channel.txSelect();
    channel.basicPublish("", queue, null, bytes("no"));
    channel.txRollback();
    channel.basicPublish("", queue, null, bytes("yes"));
    check(other.basicGet(queue, true) == null, "there before the commit");
    channel.txCommit();
    check(new String(mustGet(other, queue, true).getBody()).equals("yes"), "not committed");
    check(other.basicGet(queue, true) == null, "rolled back and there");
  }

  private static void errors(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    try {
      channel.queueDeclarePassive("no-such");
      check(false, "no error");
    } catch (IOException no) {
      AMQP.Channel.Close close =
          (AMQP.Channel.Close) ((ShutdownSignalException) no.getCause()).getReason();
      check(close.getReplyCode() == 404, "code " + close.getReplyCode());
      check(close.getReplyText().equals("NOT_FOUND - no queue 'no-such' in vhost '/'"),
          close.getReplyText());
    }
    connection.createChannel().close();
  }

  private static void directReplyTo(Connection connection) throws Exception {
    Channel asker = connection.createChannel();
    Channel server = connection.createChannel();
    String queue = declare(server);
    BlockingQueue<String> answers = new LinkedBlockingQueue<>();
    asker.basicConsume("amq.rabbitmq.reply-to", true,
        (tag, message) -> answers.add(new String(message.getBody())), tag -> { });
    asker.basicPublish("", queue,
        new AMQP.BasicProperties.Builder().replyTo("amq.rabbitmq.reply-to").build(), bytes("?"));
    GetResponse request = mustGet(server, queue, true);
    server.basicPublish("", request.getProps().getReplyTo(), null, bytes("!"));
    check("!".equals(answers.poll(PATIENCE, TimeUnit.MILLISECONDS)), "no answer");
  }

  private static void stream(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    String name = "stream-" + System.nanoTime();
    channel.queueDeclare(name, true, false, false, Map.of("x-queue-type", "stream"));
    channel.confirmSelect();
    for (int n = 0; n < 10; n++) {
      channel.basicPublish("", name, null, bytes(n));
    }
    channel.waitForConfirmsOrDie(PATIENCE);
    channel.basicQos(100);
    CountDownLatch all = new CountDownLatch(10);
    channel.basicConsume(name, false, Map.of("x-stream-offset", "first"),
        (tag, message) -> all.countDown(), tag -> { });
    check(all.await(PATIENCE, TimeUnit.MILLISECONDS), "not all came");
    channel.queueDelete(name);
  }

  // Automatic recovery: topology and consumers are back after the wire was cut.
  private static void reconnect(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    String name = "lasting-" + System.nanoTime();
    channel.queueDeclare(name, true, false, false, null);
    BlockingQueue<String> inbox = new LinkedBlockingQueue<>();
    channel.basicConsume(name, true,
        (tag, message) -> inbox.add(new String(message.getBody())), tag -> { });
    CountDownLatch recovered = new CountDownLatch(1);
    ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
      @Override
      public void handleRecovery(Recoverable recoverable) {
        recovered.countDown();
      }

      @Override
      public void handleRecoveryStarted(Recoverable recoverable) { }
    });
    System.out.println("cut");
    check(recovered.await(PATIENCE, TimeUnit.MILLISECONDS), "not recovered");
    long limit = System.currentTimeMillis() + PATIENCE;
    while (true) {
      try {
        channel.basicPublish("", name, null, bytes("after"));
        break;
      } catch (AlreadyClosedException notYet) {
        check(System.currentTimeMillis() < limit, "not recovered");
        Thread.sleep(50);
      }
    }
    check("after".equals(inbox.poll(PATIENCE, TimeUnit.MILLISECONDS)), "consumer not recovered");
    channel.queueDelete(name);
  }
}
