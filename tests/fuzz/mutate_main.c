/* mutate_main.c -- runs a fuzz target over so many mutations of stored inputs, without libFuzzer:
 * any C compiler will do, and the count is what was asked for.
 *
 *   mutate COUNT SEED FOLDER
 *
 * An input is changed a few times over: bits flipped, bytes replaced by awkward ones, parts cut out,
 * doubled, moved, or put in from another input, the end cut off, lengths blown up. The same seed
 * makes the same inputs. A crash leaves the last input in ./last-input.
 */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEEDS 1024
#define SIZE_MAX_INPUT 20000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A sanitizer's finding is a crash like others, not an exit: it leaves its input, too. */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void) {
    return "abort_on_error=1";
}

const char *__ubsan_default_options(void) {
    return "abort_on_error=1:print_stacktrace=1";
}

typedef struct input {
    uint8_t data[SIZE_MAX_INPUT];
    size_t size;
} input;

static input *seeds[SEEDS];
static int seed_count;
static input at_hand;
static uint64_t state;

static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? (uint32_t)(state >> 16) % below : 0;
}

static void keep_last(int signal_number) {
    FILE *file = fopen("last-input", "wb");
    if (file) {
        fwrite(at_hand.data, 1, at_hand.size, file);
        fclose(file);
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void load(const char *folder) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL && seed_count < SEEDS;) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(name, "rb");
        if (!file)
            continue;
        input *seed = calloc(1, sizeof *seed);
        seed->size = seed ? fread(seed->data, 1, SIZE_MAX_INPUT, file) : 0;
        fclose(file);
        if (seed->size > 3)
            seeds[seed_count++] = seed;
        else
            free(seed);
    }
    if (dir)
        closedir(dir);
}

/* Make room at `at`, or close a gap there. */
static void splice(input *in, size_t at, size_t out, const uint8_t *with, size_t len) {
    if (in->size - out + len > SIZE_MAX_INPUT)
        return;
    memmove(in->data + at + len, in->data + at + out, in->size - at - out);
    memcpy(in->data + at, with, len);
    in->size += len - out;
}

static void mutate(input *in) {
    static const uint8_t awkward[] = {0, 1, 2, 3, 8, 0x7f, 0x80, 0xce, 0xff, 20, 40, 50, 60, 70, 80, 90};
    static uint8_t part[SIZE_MAX_INPUT];
    size_t at = draw((uint32_t)in->size), left = in->size - at;
    size_t len = 1 + draw(left > 64 ? 64 : (uint32_t)left);
    len = len > left ? left : len;
    const input *from = seeds[draw((uint32_t)seed_count)];
    size_t from_at = draw((uint32_t)from->size), from_len = draw((uint32_t)(from->size - from_at)) + 1;
    switch (draw(8)) {
    case 0:
        in->data[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        in->data[at] = awkward[draw(sizeof awkward)];
        break;
    case 2:
        if (in->size > len + 3)
            splice(in, at, len, part, 0);
        break;
    case 3:
        memcpy(part, in->data + at, len);
        splice(in, at, 0, part, len);
        break;
    case 4:
        splice(in, at, 0, from->data + from_at, from_len);
        break;
    case 5:
        if (at > 3)
            in->size = at;
        break;
    case 6:
        for (size_t i = 0; i < 4 && at + i < in->size; i++)
            in->data[at + i] = (uint8_t)draw(256);
        break;
    default:
        memcpy(part, in->data + at, len);
        splice(in, at, len, part, 0);
        splice(in, draw((uint32_t)in->size + 1), 0, part, len);
    }
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    long count = atol(argv[1]);
    state = (uint64_t)atoll(argv[2]) * 0x9E3779B97F4A7C15u | 1;
    load(argv[3]);
    if (!seed_count)
        return 2;
    signal(SIGABRT, keep_last);
    signal(SIGSEGV, keep_last);
    for (long i = 0; i < count; i++) {
        at_hand = *seeds[draw((uint32_t)seed_count)];
        for (uint32_t times = draw(6); times > 0 && at_hand.size > 3; times--)
            mutate(&at_hand);
        if (draw(4) == 0)
            at_hand.data[0] = (uint8_t)(draw(256) & ~2u);
        LLVMFuzzerTestOneInput(at_hand.data, at_hand.size);
    }
    printf("%ld inputs\n", count);
    return 0;
}
