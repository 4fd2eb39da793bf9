/* librabbitmq, the C library below amqp-tools: what its command line programs have no option for.
 *
 * librabbitmq HOST PORT SCENARIO: ends with 0, or says what went wrong. "cut" asks the test to cut the
 * wire. */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 20 /* seconds */
#define CHANNEL 1

static const char *host;
static int port;

#define CHECK(holds)                                                                                                   \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            fprintf(stderr, "line %d: %s\n", __LINE__, #holds);                                                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static amqp_bytes_t text(const char *of) {
    return amqp_cstring_bytes(of);
}

static int is(amqp_bytes_t bytes, const char *wanted) {
    return bytes.len == strlen(wanted) && memcmp(bytes.bytes, wanted, bytes.len) == 0;
}

/* ---- a connection ---- */

static amqp_connection_state_t connect_to_broker(void) {
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    CHECK(socket && amqp_socket_open(socket, host, port) == AMQP_STATUS_OK);
    amqp_rpc_reply_t reply = amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest");
    CHECK(reply.reply_type == AMQP_RESPONSE_NORMAL);
    for (amqp_channel_t channel = CHANNEL; channel <= CHANNEL + 1; channel++)
        CHECK(amqp_channel_open(connection, channel));
    return connection;
}

static amqp_table_entry_t argument(const char *name, uint8_t kind, const char *value, int number) {
    amqp_table_entry_t entry = {.key = text(name)};
    entry.value.kind = kind;
    if (kind == AMQP_FIELD_KIND_UTF8)
        entry.value.value.bytes = text(value);
    else
        entry.value.value.i32 = number;
    return entry;
}

/* Exclusive, named by the broker; the name is the caller's to keep. */
static amqp_bytes_t declare(amqp_connection_state_t connection, amqp_table_entry_t *entries, int count) {
    amqp_table_t arguments = {count, entries};
    amqp_queue_declare_ok_t *ok = amqp_queue_declare(connection, CHANNEL, amqp_empty_bytes, 0, 0, 1, 1, arguments);
    CHECK(ok);
    return amqp_bytes_malloc_dup(ok->queue);
}

static void publish(amqp_connection_state_t connection, amqp_bytes_t key, const char *body, int mandatory,
                    int priority) {
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_PRIORITY_FLAG,
                                          .delivery_mode = 2,
                                          .priority = (uint8_t)priority};
    CHECK(amqp_basic_publish(connection, CHANNEL, amqp_empty_bytes, key, mandatory, 0, &properties, text(body)) == 0);
}

/* The next method frame on the channel. */
static amqp_frame_t next_method(amqp_connection_state_t connection) {
    amqp_frame_t frame;
    struct timeval patience = {PATIENCE, 0};
    CHECK(amqp_simple_wait_frame_noblock(connection, &frame, &patience) == AMQP_STATUS_OK);
    CHECK(frame.frame_type == AMQP_FRAME_METHOD && frame.channel == CHANNEL);
    return frame;
}

/* basic.get until there is one: its body must be this. The tag, and whether it came before. */
static uint64_t must_get(amqp_connection_state_t connection, amqp_bytes_t queue, int no_ack, const char *body,
                         int *redelivered, amqp_message_t *kept) {
    time_t limit = time(NULL) + PATIENCE;
    for (;; usleep(10000)) {
        CHECK(time(NULL) < limit);
        amqp_rpc_reply_t reply = amqp_basic_get(connection, CHANNEL, queue, no_ack);
        CHECK(reply.reply_type == AMQP_RESPONSE_NORMAL);
        if (reply.reply.id != AMQP_BASIC_GET_OK_METHOD)
            continue;
        const amqp_basic_get_ok_t *ok = reply.reply.decoded;
        uint64_t tag = ok->delivery_tag;
        amqp_message_t message;
        if (redelivered)
            *redelivered = ok->redelivered;
        CHECK(amqp_read_message(connection, CHANNEL, &message, 0).reply_type == AMQP_RESPONSE_NORMAL);
        CHECK(is(message.body, body));
        if (kept)
            *kept = message;
        else
            amqp_destroy_message(&message);
        return tag;
    }
}

static int is_empty(amqp_connection_state_t connection, amqp_bytes_t queue) {
    return amqp_basic_get(connection, CHANNEL + 1, queue, 1).reply.id == AMQP_BASIC_GET_EMPTY_METHOD;
}

/* ---- the scenarios ---- */

static void publish_and_consume(amqp_connection_state_t connection) {
    amqp_bytes_t queue = declare(connection, NULL, 0);
    char body[8];
    CHECK(amqp_basic_qos(connection, CHANNEL, 0, 10, 0));
    CHECK(amqp_basic_consume(connection, CHANNEL, queue, amqp_empty_bytes, 0, 0, 0, amqp_empty_table));
    for (int number = 0; number < 50; number++) {
        snprintf(body, sizeof body, "%d", number);
        publish(connection, queue, body, 0, 0);
    }
    for (int number = 0; number < 50; number++) {
        amqp_envelope_t envelope;
        struct timeval patience = {PATIENCE, 0};
        CHECK(amqp_consume_message(connection, &envelope, &patience, 0).reply_type == AMQP_RESPONSE_NORMAL);
        snprintf(body, sizeof body, "%d", number);
        CHECK(is(envelope.message.body, body));
        CHECK(amqp_basic_ack(connection, CHANNEL, envelope.delivery_tag, 0) == 0);
        amqp_destroy_envelope(&envelope);
    }
    CHECK(is_empty(connection, queue));
}

static void confirm(amqp_connection_state_t connection) {
    amqp_table_entry_t arguments[] = {
        argument("x-max-length", AMQP_FIELD_KIND_I32, NULL, 1),
        argument("x-overflow", AMQP_FIELD_KIND_UTF8, "reject-publish", 0),
    };
    amqp_bytes_t queue = declare(connection, arguments, 2);
    CHECK(amqp_confirm_select(connection, CHANNEL));
    publish(connection, queue, "fits", 0, 0);
    amqp_frame_t frame = next_method(connection);
    CHECK(frame.payload.method.id == AMQP_BASIC_ACK_METHOD);
    CHECK(((amqp_basic_ack_t *)frame.payload.method.decoded)->delivery_tag == 1);
    publish(connection, queue, "does not", 0, 0);
    frame = next_method(connection);
    CHECK(frame.payload.method.id == AMQP_BASIC_NACK_METHOD);
    CHECK(((amqp_basic_nack_t *)frame.payload.method.decoded)->delivery_tag == 2);
}

static void returned(amqp_connection_state_t connection) {
    amqp_message_t message;
    CHECK(amqp_confirm_select(connection, CHANNEL));
    publish(connection, text("nobody"), "back", 1, 0);
    amqp_frame_t frame = next_method(connection);
    CHECK(frame.payload.method.id == AMQP_BASIC_RETURN_METHOD);
    const amqp_basic_return_t *back = frame.payload.method.decoded;
    CHECK(back->reply_code == 312 && is(back->routing_key, "nobody"));
    CHECK(amqp_read_message(connection, CHANNEL, &message, 0).reply_type == AMQP_RESPONSE_NORMAL);
    CHECK(is(message.body, "back"));
    CHECK(next_method(connection).payload.method.id == AMQP_BASIC_ACK_METHOD);
}

static void nack_and_requeue(amqp_connection_state_t connection) {
    amqp_bytes_t queue = declare(connection, NULL, 0);
    int redelivered;
    publish(connection, queue, "x", 0, 0);
    uint64_t tag = must_get(connection, queue, 0, "x", &redelivered, NULL);
    CHECK(!redelivered);
    CHECK(amqp_basic_nack(connection, CHANNEL, tag, 0, 1) == 0);
    tag = must_get(connection, queue, 0, "x", &redelivered, NULL);
    CHECK(redelivered);
    CHECK(amqp_basic_nack(connection, CHANNEL, tag, 0, 0) == 0);
    CHECK(is_empty(connection, queue));
}

static void priority(amqp_connection_state_t connection) {
    amqp_table_entry_t arguments[] = {argument("x-max-priority", AMQP_FIELD_KIND_I32, NULL, 5)};
    amqp_bytes_t queue = declare(connection, arguments, 1);
    CHECK(amqp_tx_select(connection, CHANNEL)); /* all three are there at once */
    publish(connection, queue, "low", 0, 1);
    publish(connection, queue, "high", 0, 5);
    publish(connection, queue, "middle", 0, 3);
    CHECK(amqp_tx_commit(connection, CHANNEL));
    must_get(connection, queue, 1, "high", NULL, NULL);
    must_get(connection, queue, 1, "middle", NULL, NULL);
    must_get(connection, queue, 1, "low", NULL, NULL);
}

static void dead_letters(amqp_connection_state_t connection) {
    amqp_bytes_t grave = declare(connection, NULL, 0);
    amqp_table_entry_t arguments[] = {
        argument("x-dead-letter-exchange", AMQP_FIELD_KIND_UTF8, "", 0),
        argument("x-dead-letter-routing-key", AMQP_FIELD_KIND_UTF8, "", 0),
    };
    arguments[1].value.value.bytes = grave;
    amqp_bytes_t queue = declare(connection, arguments, 2);
    publish(connection, queue, "x", 0, 0);
    CHECK(amqp_basic_reject(connection, CHANNEL, must_get(connection, queue, 0, "x", NULL, NULL), 0) == 0);
    amqp_message_t dead;
    must_get(connection, grave, 1, "x", NULL, &dead);
    int found = 0;
    for (int i = 0; i < dead.properties.headers.num_entries; i++) {
        const amqp_table_entry_t *header = &dead.properties.headers.entries[i];
        if (!is(header->key, "x-death"))
            continue;
        CHECK(header->value.kind == AMQP_FIELD_KIND_ARRAY && header->value.value.array.num_entries == 1);
        const amqp_table_t *death = &header->value.value.array.entries[0].value.table;
        for (int j = 0; j < death->num_entries; j++)
            found += is(death->entries[j].key, "reason") && is(death->entries[j].value.value.bytes, "rejected");
    }
    CHECK(found == 1);
}

static void tx(amqp_connection_state_t connection) {
    amqp_bytes_t queue = declare(connection, NULL, 0);
    CHECK(amqp_tx_select(connection, CHANNEL));
    publish(connection, queue, "no", 0, 0);
    CHECK(amqp_tx_rollback(connection, CHANNEL));
    publish(connection, queue, "yes", 0, 0);
    CHECK(is_empty(connection, queue));
    CHECK(amqp_tx_commit(connection, CHANNEL));
    uint64_t tag = must_get(connection, queue, 0, "yes", NULL, NULL);
    CHECK(amqp_basic_ack(connection, CHANNEL, tag, 0) == 0);
    CHECK(amqp_tx_commit(connection, CHANNEL));
    CHECK(is_empty(connection, queue));
}

static void reconnect(amqp_connection_state_t connection) {
    char name[64];
    int redelivered;
    snprintf(name, sizeof name, "lasting-%d-%ld", (int)getpid(), (long)time(NULL));
    CHECK(amqp_queue_declare(connection, CHANNEL, text(name), 0, 1, 0, 0, amqp_empty_table));
    CHECK(amqp_confirm_select(connection, CHANNEL));
    publish(connection, text(name), "x", 0, 0);
    CHECK(next_method(connection).payload.method.id == AMQP_BASIC_ACK_METHOD);
    must_get(connection, text(name), 0, "x", NULL, NULL);
    puts("cut");
    fflush(stdout);
    amqp_frame_t frame;
    struct timeval patience = {PATIENCE, 0};
    CHECK(amqp_simple_wait_frame_noblock(connection, &frame, &patience) < 0);
    amqp_connection_state_t again = connect_to_broker();
    must_get(again, text(name), 1, "x", &redelivered, NULL);
    CHECK(redelivered);
    CHECK(amqp_queue_delete(again, CHANNEL, text(name), 0, 0));
    amqp_destroy_connection(again);
}

static const struct {
    const char *name;
    void (*run)(amqp_connection_state_t);
} SCENARIOS[] = {
    {"publish_and_consume", publish_and_consume},
    {"confirm", confirm},
    {"returned", returned},
    {"nack_and_requeue", nack_and_requeue},
    {"priority", priority},
    {"dead_letters", dead_letters},
    {"tx", tx},
    {"reconnect", reconnect},
};

int main(int count, char **arguments) {
    CHECK(count == 4);
    host = arguments[1];
    port = atoi(arguments[2]);
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++) {
        if (strcmp(SCENARIOS[i].name, arguments[3]))
            continue;
        amqp_connection_state_t connection = connect_to_broker();
        SCENARIOS[i].run(connection);
        amqp_destroy_connection(connection);
        return 0;
    }
    fprintf(stderr, "no scenario %s\n", arguments[3]);
    return 2;
}
