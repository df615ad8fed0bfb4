// The limits of the machine: no exchange between cores can be faster.
//
//     limits         one JSON object a line: {"limit", "bytes", "median_us", "min_us"}
//     limits line    only that
//
// | limit | |
// | --- | --- |
// | line | the one-way transfer of a cache line between two cores: two threads alternate |
// | lines | the same with many lines at a time, until the last has arrived |
// | copy | memcpy from one private buffer to another |
// | streaming-copy | the same with non-temporal stores |
// | streaming-copy-by-all | the same on two cores at a time |
// | remote-copy | memcpy from a buffer that another core has just written |
// | switch | from one thread to another on the same core, by sched_yield |
// | wake | from a wake-up on one core until the sleeper on another core runs |
// | wake-late | the same, after the sleeper has slept for 8 ms, as in the wake-up of `intranode bench` |

#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { REPETITIONS = 21 };

static int cpus[2];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e6 * time.tv_sec + 1e-3 * time.tv_nsec;
}

static void bind(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *limit, size_t bytes, double *times) {
    qsort(times, REPETITIONS, sizeof *times, ascending);
    printf("{\"limit\":\"%s\",\"bytes\":%zu,\"median_us\":%.6g,\"min_us\":%.6g}\n", limit, bytes,
           times[REPETITIONS / 2], times[0]);
    fflush(stdout);
}

// Two threads alternate: `wait` returns when `word` holds `turn`, `give` stores it.

static _Alignas(128) atomic_uint word;

static void spin(unsigned turn) {
    while (atomic_load_explicit(&word, memory_order_acquire) != turn) {
    }
}

static void yield(unsigned turn) {
    while (atomic_load_explicit(&word, memory_order_acquire) != turn) sched_yield();
}

static void sleep_on(unsigned turn) {
    unsigned seen;
    while ((seen = atomic_load_explicit(&word, memory_order_acquire)) != turn)
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, NULL);
}

static void set(unsigned turn) { atomic_store_explicit(&word, turn, memory_order_release); }

static void set_and_wake(unsigned turn) {
    set(turn);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1);
}

// As many lines as a rank of a large machine waits for, each with a neighbour, which the adjacent-line prefetcher fetches.
static struct {
    _Alignas(128) atomic_uint word;
} many[64];
static unsigned lines;

static void spin_on_all(unsigned turn) {
    for (unsigned i = 0; i < lines; i++)
        while (atomic_load_explicit(&many[i].word, memory_order_acquire) != turn) {
        }
}

static void set_all(unsigned turn) {
    for (unsigned i = 0; i < lines; i++) atomic_store_explicit(&many[i].word, turn, memory_order_release);
}

struct game {
    const char *name;
    int same_core;
    unsigned turns;
    void (*wait)(unsigned), (*give)(unsigned);
};

static void *answer(void *argument) {
    struct game *game = argument;
    bind(cpus[!game->same_core]);
    for (unsigned turn = 1; turn < REPETITIONS * game->turns; turn += 2) {
        game->wait(turn);
        game->give(turn + 1);
    }
    return NULL;
}

static void play(struct game game) {
    pthread_t partner;
    double times[REPETITIONS];
    bind(cpus[0]);
    game.give(0);
    pthread_create(&partner, NULL, answer, &game);
    unsigned turn = 0;
    for (int repetition = 0; repetition < REPETITIONS; repetition++) {
        double begin = now();
        for (unsigned i = 0; i < game.turns; i += 2) {
            game.give(turn + 1);
            turn += 2;
            game.wait(turn);
        }
        times[repetition] = (now() - begin) / game.turns;
    }
    pthread_join(partner, NULL);
    report(game.name, game.same_core ? 0 : 64 * (lines ? lines : 1), times);
}

static double woken;

static void *sleep_long(void *argument) {
    double *times = argument;
    bind(cpus[1]);
    for (unsigned turn = 0; turn < 2 * REPETITIONS; turn += 2) {
        sleep_on(turn + 1);
        times[turn / 2] = now() - woken;
        set(turn + 2);
    }
    return NULL;
}

static void wake_late(void) {
    pthread_t partner;
    double times[REPETITIONS];
    bind(cpus[0]);
    set(0);
    pthread_create(&partner, NULL, sleep_long, times);
    for (unsigned turn = 0; turn < 2 * REPETITIONS; turn += 2) {
        for (double begin = now(); now() < begin + 8000;) {
        }
        woken = now();
        set_and_wake(turn + 1);
        spin(turn + 2);
    }
    pthread_join(partner, NULL);
    report("wake-late", 64, times);
}

static void plain(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

#ifdef __SSE2__
static void streaming(void *to, const void *from, size_t bytes) {
    for (size_t i = 0; i < bytes / 16; i++)
        _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
    _mm_sfence();
}
#endif

struct dirt {
    char *memory;
    size_t bytes;
    int value;
};

static void *write_remotely(void *argument) {
    struct dirt *dirt = argument;
    bind(cpus[1]);
    memset(dirt->memory, dirt->value, dirt->bytes);
    return NULL;
}

static void copies(const char *name, void (*copy)(void *, const void *, size_t), size_t bytes, int remote) {
    char *from = aligned_alloc(4096, bytes), *to = aligned_alloc(4096, bytes);
    double times[REPETITIONS];
    if (!from || !to) exit(1);
    memset(from, 1, bytes), memset(to, 2, bytes);
    bind(cpus[0]);
    int calls = remote || bytes > 1 << 20 ? 1 : (1 << 22) / bytes;
    for (int repetition = 0; repetition < REPETITIONS; repetition++) {
        struct dirt dirt = {from, bytes, repetition};
        pthread_t writer;
        if (remote) {
            pthread_create(&writer, NULL, write_remotely, &dirt);
            pthread_join(writer, NULL);
        }
        double begin = now();
        for (int i = 0; i < calls; i++) {
            copy(to, from, bytes);
            __asm__ volatile("" ::: "memory");
        }
        times[repetition] = (now() - begin) / calls;
    }
    report(name, bytes, times);
    free(from), free(to);
}

#ifdef __SSE2__
static pthread_barrier_t start;

struct share {
    size_t bytes;
    int cpu;
    double *times;
};

static void *stream_on(void *argument) {
    struct share *share = argument;
    bind(share->cpu);
    char *from = aligned_alloc(4096, share->bytes), *to = aligned_alloc(4096, share->bytes);
    if (!from || !to) exit(1);
    memset(from, 1, share->bytes), memset(to, 2, share->bytes);
    for (int repetition = 0; repetition < REPETITIONS; repetition++) {
        pthread_barrier_wait(&start);
        double begin = now();
        streaming(to, from, share->bytes);
        pthread_barrier_wait(&start);
        share->times[repetition] = now() - begin;
    }
    free(from), free(to);
    return NULL;
}

static void copy_by_all(size_t bytes) {
    double times[2][REPETITIONS];
    struct share here = {bytes, cpus[0], times[0]}, there = {bytes, cpus[1], times[1]};
    pthread_t other;
    pthread_barrier_init(&start, NULL, 2);
    pthread_create(&other, NULL, stream_on, &there);
    stream_on(&here);
    pthread_join(other, NULL);
    report("streaming-copy-by-all", bytes, times[0]);
}
#endif

int main(int argc, char **argv) {
    int only_line = argc == 2 && !strcmp(argv[1], "line");
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    int found = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed)) cpus[found++] = cpu;
    if (found == 2) play((struct game){"line", 0, 1000, spin, set});
    if (only_line) return 0;
    for (lines = 4; found == 2 && lines <= 64; lines *= 4) play((struct game){"lines", 0, 1000, spin_on_all, set_all});
    lines = 0;
    if (found == 2) play((struct game){"wake", 0, 20, sleep_on, set_and_wake});
    if (found == 2) wake_late();
    play((struct game){"switch", 1, 200, yield, set});
    size_t sizes[] = {8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 32 << 20, 206000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        copies("copy", plain, sizes[i], 0);
#ifdef __SSE2__
        copies("streaming-copy", streaming, sizes[i], 0);
        if (found == 2 && sizes[i] >= 32 << 20) copy_by_all(sizes[i]);
#endif
        if (found == 2) copies("remote-copy", plain, sizes[i], 1);
    }
}
