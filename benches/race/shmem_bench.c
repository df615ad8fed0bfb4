// The time of one-sided accesses over OpenSHMEM: what mpi_bench.c measures of MPI's windows, with the same definitions, payloads
// and checks. Each rank accesses the memory of the next one.
//
//     shmem_bench SECONDS OPERATION:BYTES...    one JSON object a line; OPERATION as in `cases` below
//     SHMEM_BENCH_YIELD=1 shmem_bench …        a rank that waits for a signal yields the processor
//
// It needs OpenSHMEM 1.4, which has no put with signal: a put, a fence and a put of the signal's word stand for it.

#include <sched.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_CALLS = 1000, FEWEST_REPETITIONS = 5, MOST_REPETITIONS = 10000, PAGE = 512 };
static const double LONG_ENOUGH = 1e-3;
static const size_t LARGE = 256 << 10;
static const double PLACES = 1 << 26;

static int rank, ranks;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void *checked(void *memory) {
    if (!memory) {
        fprintf(stderr, "no memory; the heap's size is SHMEM_SYMMETRIC_SIZE\n");
        shmem_global_exit(1);
    }
    return memory;
}

// The payload, as in mpi_bench.c.

static double first_value(long turn, int of) {
    return ((double)(turn % 1024) * ranks + of) * PLACES;
}

static void fill(double *values, size_t count, double first, size_t step) {
    for (size_t place = 0; place < count; place += step) values[place] = first + place;
}

// Whether each value is its index, plus `last` in the first value of each page and `first` elsewhere.
static int is_filled(const double *values, size_t count, double first, double last) {
    int right = 1;
    for (size_t page = 0; page < count; page += PAGE) {
        size_t end = page + PAGE < count ? page + PAGE : count;
        right &= values[page] == last + page;
        for (size_t place = page + 1; place < end; place++) right &= values[place] == first + place;
    }
    return right;
}

// The operations.

static size_t elements;
static double *private, *shared;
static long *word;
static long turn_of_signal;
static int yields;

static int next(void) { return (rank + 1) % ranks; }

static void put(void) {
    shmem_double_put(shared, private, elements, next());
    shmem_quiet();
}

static void get(void) { shmem_double_get(private, shared, elements, next()); }

static void fetch_add(void) { shmem_long_atomic_fetch_add(word, 1, 0); }

static void pass_on(void) {
    shmem_double_put(shared, private, elements, next());
    shmem_fence();
    shmem_long_p(word, turn_of_signal, next());
    // Without this the signal might wait for a later call.
    shmem_quiet();
}

// Open MPI's shmem_wait_until does not yield: with more ranks than cores it takes as long as the scheduler lets it.
static void await_signal(void) {
    if (!yields) return shmem_long_wait_until(word, SHMEM_CMP_GE, turn_of_signal);
    while (!shmem_long_test(word, SHMEM_CMP_GE, turn_of_signal)) sched_yield();
}

static void put_signal(void) {
    turn_of_signal++;
    if (rank == 0) pass_on();
    await_signal();
    if (rank != 0) pass_on();
}

enum kind { PUT, GET, FETCH_ADD, PUT_SIGNAL, KINDS };
static const struct {
    const char *name;
    void (*call)(void);
} cases[] = {{"put", put}, {"get", get}, {"fetch-add", fetch_add}, {"put-signal", put_signal}};

static void prepare(enum kind kind, long turn, size_t step) {
    double first = first_value(turn, rank);
    if (kind == PUT || kind == PUT_SIGNAL) fill(private, elements, first, step);
    if (kind == GET && step == 1) fill(shared, elements, first, step);
}

static int is_right(enum kind kind, long first, long last) {
    if (kind == GET) return is_filled(private, elements, first_value(first, next()), first_value(first, next()));
    shmem_barrier_all();
    if (kind == FETCH_ADD) return rank != 0 || *word == last * ranks;
    int from = (rank + ranks - 1) % ranks;
    return is_filled(shared, elements, first_value(first, from), first_value(last, from));
}

// The slowest rank's time per call, in seconds.
static double repetition(enum kind kind, long *turn, int calls) {
    static double mine, slowest, work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
    static long synchronisation[SHMEM_REDUCE_SYNC_SIZE];
    long first = *turn + 1;
    *turn += calls;
    prepare(kind, first, 1);
    for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++) synchronisation[i] = SHMEM_SYNC_VALUE;
    shmem_barrier_all();
    double begin = now();
    for (int call = 0; call < calls; call++) {
        if (call > 0) prepare(kind, first + call, PAGE);
        cases[kind].call();
    }
    mine = (now() - begin) / calls;
    if (!is_right(kind, first, *turn)) {
        fprintf(stderr, "rank %d: the result of %s of %zu values is wrong\n", rank, cases[kind].name, elements);
        shmem_global_exit(1);
    }
    shmem_barrier_all();
    shmem_double_max_to_all(&slowest, &mine, 1, 0, 0, ranks, work, synchronisation);
    return slowest;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The number of repetitions that rank 0 has chosen.
static int agreed(int repetitions) {
    static int chosen;
    chosen = repetitions;
    shmem_barrier_all();
    repetitions = rank == 0 ? chosen : shmem_int_g(&chosen, 0);
    shmem_barrier_all();
    return repetitions;
}

static void measure(enum kind kind, size_t bytes, double seconds) {
    elements = bytes / sizeof(double);
    private = checked(calloc(elements, sizeof *private));
    shared = checked(shmem_malloc(bytes)), word = checked(shmem_malloc(sizeof *word));
    memset(shared, 0, bytes), *word = 0, turn_of_signal = 0;
    shmem_barrier_all();

    long turn = 0;
    repetition(kind, &turn, 1);
    int calls = 1;
    double whole;
    for (;;) {
        double begin = now();
        double each = repetition(kind, &turn, calls);
        whole = now() - begin;
        if (bytes >= LARGE || calls == MOST_CALLS || each * calls >= LONG_ENOUGH) break;
        calls = 2 * calls < MOST_CALLS ? 2 * calls : MOST_CALLS;
    }
    double fitting = seconds / whole;
    int repetitions = agreed(fitting < FEWEST_REPETITIONS  ? FEWEST_REPETITIONS
                             : fitting > MOST_REPETITIONS ? MOST_REPETITIONS
                                                          : (int)fitting);
    double *times = checked(calloc(repetitions, sizeof *times));
    for (int i = 0; i < repetitions; i++) times[i] = 1e6 * repetition(kind, &turn, calls);
    qsort(times, repetitions, sizeof *times, ascending);
    if (rank == 0) {
        double median = (times[(repetitions - 1) / 2] + times[repetitions / 2]) / 2;
        printf("{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"median_us\":%.6g,\"min_us\":%.6g,\"max_us\":%.6g,"
               "\"repetitions\":%d}\n",
               cases[kind].name, bytes, ranks, median, times[0], times[repetitions - 1], repetitions);
        fflush(stdout);
    }
    shmem_free(word), shmem_free(shared), free(times), free(private);
}

int main(int argc, char **argv) {
    shmem_init();
    rank = shmem_my_pe(), ranks = shmem_n_pes(), yields = getenv("SHMEM_BENCH_YIELD") != NULL;
    for (int i = 2; i < argc; i++) {
        for (int kind = PUT; kind < KINDS; kind++) {
            size_t length = strlen(cases[kind].name);
            if (!strncmp(argv[i], cases[kind].name, length) && argv[i][length] == ':')
                measure(kind, strtoull(argv[i] + length + 1, NULL, 10), atof(argv[1]));
        }
    }
    shmem_finalize();
}
