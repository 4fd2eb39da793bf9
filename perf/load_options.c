/* load_options.c -- the command line. */
#define _GNU_SOURCE
#include "load.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

load_options options = {
    .host = "127.0.0.1",
    .port = 5672,
    .publishers = 1,
    .consumers = 1,
    .queues = 1,
    .threads = 1,
    .size = 1024,
    .ack_every = 1,
    .seconds = 5,
    .warm_up = 1,
    .patience = 60,
    .name = "load",
    .ttl = -1,
};

static const char usage[] =
    "usage: amqp_load [options]\n"
    "  --address HOST:PORT     where the broker listens (127.0.0.1:5672), guest/guest, vhost /\n"
    "  --publishers N --consumers N --queues N     connections; publisher i goes to queue i % queues\n"
    "  --size BYTES            of a body (1024)\n"
    "  --persistent            delivery mode 2\n"
    "  --confirms WINDOW       publisher confirms, at most WINDOW open a connection\n"
    "  --auto-ack              consume without acks, else acks with multiple:\n"
    "  --ack-every N           ... after N messages (default: after each read)\n"
    "  --prefetch N            basic.qos for each consumer (default: none)\n"
    "  --rate R                messages a second and publisher; with confirms their latency is told\n"
    "  --in-flight N           publishers wait while N messages are published and not delivered\n"
    "  --seconds S --warm-up S how long (5 after 1), or:\n"
    "  --messages N            publish N in all; without publishers: consume N\n"
    "  --leave-rest            stop after the seconds: what is still queued doesn't matter\n"
    "  --name NAME             queues are NAME.0, NAME.1 ... (load)\n"
    "  --type TYPE             x-queue-type: classic, quorum\n"
    "  --argument KEY=VALUE    of the queues; may be repeated\n"
    "  --ttl MS                messages expire into NAME.n.dead, and consumers sit there\n"
    "  --exchange TYPE         publish to an exchange of that type to which all queues are bound\n"
    "  --keep                  leave the queues and their messages there\n"
    "  --threads 1|2           two: publishers and consumers apart\n"
    "  --watch GROUP           tell the cores that this process group took\n"
    "  --patience S            fail when nothing moved for that long (60)\n";

void parse(int argc, char **argv) {
    enum {
        ADDRESS = 1,
        PUBLISHERS,
        CONSUMERS,
        QUEUES,
        SIZE,
        PERSISTENT,
        CONFIRMS,
        AUTO_ACK,
        ACK_EVERY,
        PREFETCH,
        RATE,
        IN_FLIGHT,
        SECONDS,
        WARM_UP,
        MESSAGES,
        LEAVE_REST,
        NAME,
        TYPE,
        ARGUMENT,
        TTL,
        EXCHANGE,
        KEEP,
        THREADS,
        WATCH,
        PATIENCE
    };
    static const struct option known[] = {
        {"address", 1, 0, ADDRESS},     {"publishers", 1, 0, PUBLISHERS},
        {"consumers", 1, 0, CONSUMERS}, {"queues", 1, 0, QUEUES},
        {"size", 1, 0, SIZE},           {"persistent", 0, 0, PERSISTENT},
        {"confirms", 1, 0, CONFIRMS},   {"auto-ack", 0, 0, AUTO_ACK},
        {"ack-every", 1, 0, ACK_EVERY}, {"prefetch", 1, 0, PREFETCH},
        {"rate", 1, 0, RATE},           {"in-flight", 1, 0, IN_FLIGHT},
        {"seconds", 1, 0, SECONDS},     {"warm-up", 1, 0, WARM_UP},
        {"messages", 1, 0, MESSAGES},   {"leave-rest", 0, 0, LEAVE_REST},
        {"name", 1, 0, NAME},           {"type", 1, 0, TYPE},
        {"argument", 1, 0, ARGUMENT},   {"ttl", 1, 0, TTL},
        {"exchange", 1, 0, EXCHANGE},   {"keep", 0, 0, KEEP},
        {"threads", 1, 0, THREADS},     {"watch", 1, 0, WATCH},
        {"patience", 1, 0, PATIENCE},   {0, 0, 0, 0},
    };
    for (int which; (which = getopt_long(argc, argv, "", known, NULL)) != -1;)
        switch (which) {
        case ADDRESS:
            if (sscanf(optarg, "%63[^:]:%d", options.host, &options.port) != 2)
                fail("--address takes HOST:PORT");
            break;
        case PUBLISHERS:
            options.publishers = atoi(optarg);
            break;
        case CONSUMERS:
            options.consumers = atoi(optarg);
            break;
        case QUEUES:
            options.queues = atoi(optarg);
            break;
        case SIZE:
            options.size = strtoull(optarg, NULL, 10);
            break;
        case PERSISTENT:
            options.persistent = 1;
            break;
        case CONFIRMS:
            options.window = strtoull(optarg, NULL, 10);
            break;
        case AUTO_ACK:
            options.auto_ack = 1;
            break;
        case ACK_EVERY:
            options.ack_every = (unsigned)atoi(optarg);
            break;
        case PREFETCH:
            options.prefetch = (unsigned)atoi(optarg);
            break;
        case RATE:
            options.rate = atof(optarg);
            break;
        case IN_FLIGHT:
            options.in_flight = strtoull(optarg, NULL, 10);
            break;
        case SECONDS:
            options.seconds = atof(optarg);
            break;
        case WARM_UP:
            options.warm_up = atof(optarg);
            break;
        case MESSAGES:
            options.messages = options.expect = strtoull(optarg, NULL, 10);
            break;
        case LEAVE_REST:
            options.leave_rest = 1;
            break;
        case NAME:
            options.name = optarg;
            break;
        case TYPE:
            options.type = optarg;
            break;
        case ARGUMENT:
            if (options.argument_count == 16)
                fail("too many arguments");
            options.arguments[options.argument_count++] = optarg;
            break;
        case TTL:
            options.ttl = atol(optarg);
            break;
        case EXCHANGE:
            options.exchange = optarg;
            break;
        case KEEP:
            options.keep = 1;
            break;
        case THREADS:
            options.threads = atoi(optarg) > 1 ? 2 : 1;
            break;
        case WATCH:
            options.watch = atol(optarg);
            break;
        case PATIENCE:
            options.patience = atof(optarg);
            break;
        default:
            fputs(usage, stderr);
            exit(2);
        }
    if (optind != argc || options.queues < 1 || strlen(options.name) > 80 ||
        (!options.publishers && !options.messages)) {
        fputs(usage, stderr);
        exit(2);
    }
    /* An ack must come before the credit is used up. */
    if (options.prefetch && options.ack_every > options.prefetch / 2)
        options.ack_every = options.prefetch / 2;
}
