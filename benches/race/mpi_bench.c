// The time of collectives over MPI: the counterpart of `intranode bench`, with the same definitions.
//
// In one repetition a rank writes a new payload, synchronises, calls (several times, if one call is too short for the
// clock), reads the clock, checks the result, and exchanges the times. Only the calls are timed. A repetition's time is
// that of the slowest rank. Between the calls of a repetition one value of each page changes. A large call is a repetition
// of its own, so that its whole payload is new. The first repetitions touch the buffers and warm up.
//
// That is "renewed". "Unchanged", as in the OSU benchmarks, the payload is written once, before the first repetition; each
// repetition begins with a call that is not timed, after the check of the one before has read the results.
//
//     mpi_bench SECONDS OPERATION:BYTES[:unchanged]...    one JSON object a line; OPERATION as in `cases` below
//     mpi_bench start-up                                  each rank prints its monotonic clock after the first barrier

#include <mpi.h>
#include <stdbool.h>
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

static void *buffer(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fprintf(stderr, "no memory for %zu values\n", count);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

// The payload. Every value encodes its call, rank and index; all values and their sums are integers that a double holds
// exactly.

static double first_value(long turn, int of) {
    return ((double)(turn % 1024) * ranks + of) * PLACES;
}

static void fill(double *values, size_t count, double first, size_t step) {
    for (size_t place = 0; place < count; place += step) values[place] = first + place;
}

// Whether each value is `scale` times its index, plus `last` in the first value of each page and `first` elsewhere.
static int is_filled(const double *values, size_t count, double first, double last, double scale) {
    int right = 1;
    for (size_t page = 0; page < count; page += PAGE) {
        size_t end = page + PAGE < count ? page + PAGE : count;
        right &= values[page] == last + scale * page;
        for (size_t place = page + 1; place < end; place++) right &= values[place] == first + scale * place;
    }
    return right;
}

// The operations.

static size_t elements;
static double *send, *recv;
static int *counts, *displs;
// The same for blocks of `elements`.
static int *block_counts, *block_displs;

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void allreduce(void) { MPI_Allreduce(send, recv, (int)elements, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }

static MPI_Op own_sum;

static void sum(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    const double *next = in;
    double *acc = inout;
    for (int i = 0; i < *count; i++) acc[i] += next[i];
}

static void allreduce_with(void) { MPI_Allreduce(send, recv, (int)elements, MPI_DOUBLE, own_sum, MPI_COMM_WORLD); }

static void allgatherv(void) {
    MPI_Allgatherv(send, counts[rank], MPI_DOUBLE, recv, counts, displs, MPI_DOUBLE, MPI_COMM_WORLD);
}

static void broadcast(void) { MPI_Bcast(recv, (int)elements, MPI_DOUBLE, 0, MPI_COMM_WORLD); }

// With blocks of `elements` for each rank, or for one. Measured call by call, each from a common start, as the OSU benchmarks
// do: senders of a rooted call may run ahead.

static void reduce(void) { MPI_Reduce(send, recv, (int)elements, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD); }

static void gather(void) {
    MPI_Gather(send, (int)elements, MPI_DOUBLE, recv, (int)elements, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

static void scatter(void) {
    MPI_Scatter(send, (int)elements, MPI_DOUBLE, recv, (int)elements, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

static void alltoall(void) {
    MPI_Alltoall(send, (int)elements, MPI_DOUBLE, recv, (int)elements, MPI_DOUBLE, MPI_COMM_WORLD);
}

static void gatherv(void) {
    MPI_Gatherv(send, (int)elements, MPI_DOUBLE, recv, block_counts, block_displs, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

static void scatterv(void) {
    MPI_Scatterv(send, block_counts, block_displs, MPI_DOUBLE, recv, (int)elements, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

static void alltoallv(void) {
    MPI_Alltoallv(send, block_counts, block_displs, MPI_DOUBLE, recv, block_counts, block_displs, MPI_DOUBLE, MPI_COMM_WORLD);
}

static void reduce_scatter(void) {
    MPI_Reduce_scatter_block(send, recv, (int)elements, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void exscan(void) { MPI_Exscan(send, recv, (int)elements, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }

// One-sided: each rank accesses the memory of the next one, by a window that is locked for all of the time.

static MPI_Win window, words;
static double *shared;
static volatile long *word;
static long turn_of_signal;

static int next(void) { return (rank + 1) % ranks; }

static void put(void) {
    MPI_Put(send, (int)elements, MPI_DOUBLE, next(), 0, (int)elements, MPI_DOUBLE, window);
    MPI_Win_flush(next(), window);
}

static void get(void) {
    MPI_Get(recv, (int)elements, MPI_DOUBLE, next(), 0, (int)elements, MPI_DOUBLE, window);
    MPI_Win_flush(next(), window);
}

static void fetch_add(void) {
    long one = 1, before;
    MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, words);
    MPI_Win_flush(0, words);
}

static void pass_on(void) {
    put();
    long before;
    MPI_Fetch_and_op(&turn_of_signal, &before, MPI_LONG, next(), 0, MPI_REPLACE, words);
    MPI_Win_flush(next(), words);
}

static void put_signal(void) {
    turn_of_signal++;
    if (rank == 0) pass_on();
    for (long polls = 1; *word != turn_of_signal; polls++) {
        // What needs progress, or the processor, gets it.
        int flag;
        if (polls % 64 == 0) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Win_sync(words);
    MPI_Win_sync(window);
    if (rank != 0) pass_on();
}

// Messages: ranks in pairs, 0 with 1, 2 with 3 and so on. A last rank without a partner has nothing to do; one that is alone
// sends to itself.

// How many calls there were, the number of the payload, and that of the payload that was received last.
static long messages, prepared, received;
static double took;
static const double PAUSE = 8e-3;

static int partner(void) { return ranks == 1 ? 0 : (rank ^ 1) < ranks ? rank ^ 1 : -1; }

static void pass_on_message(int sends) {
    int to = partner(), count = (int)elements;
    if (to >= 0 && (to == rank || !sends)) received = prepared;
    if (to == rank)
        MPI_Sendrecv(send, count, MPI_DOUBLE, to, 1, recv, count, MPI_DOUBLE, to, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (to >= 0 && sends)
        MPI_Send(send, count, MPI_DOUBLE, to, 1, MPI_COMM_WORLD);
    else if (to >= 0)
        MPI_Recv(recv, count, MPI_DOUBLE, to, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// The ranks of a pair take turns: a call is half a round trip.
static void ping_pong(void) { pass_on_message(rank % 2 == messages++ % 2); }

// Always the first of a pair sends.
static void stream(void) { pass_on_message(rank % 2 == 0); }

// The sender waits longer than a receiver polls that can sleep, and sends the clock.
static void wake_up(void) {
    if (rank % 2 == 0) {
        for (double begin = now(); now() - begin < PAUSE;) {
        }
        send[1] = now();
    }
    pass_on_message(rank % 2 == 0);
    took = recv[1] > 0 ? now() - recv[1] : 0;
}

enum kind { BARRIER, ALLREDUCE, ALLREDUCE_WITH, ALLGATHERV, BROADCAST, REDUCE, GATHER, SCATTER, ALLTOALL, GATHERV, SCATTERV,
            ALLTOALLV, REDUCE_SCATTER, EXSCAN, PUT, GET, FETCH_ADD, PUT_SIGNAL, PING_PONG, STREAM, WAKE_UP };
static const struct {
    const char *name;
    void (*call)(void);
} cases[] = {{"barrier", barrier},
             {"allreduce", allreduce},
             {"allreduce-with", allreduce_with},
             {"allgatherv", allgatherv},
             {"broadcast", broadcast},
             {"reduce", reduce},
             {"gather", gather},
             {"scatter", scatter},
             {"alltoall", alltoall},
             {"gatherv", gatherv},
             {"scatterv", scatterv},
             {"alltoallv", alltoallv},
             {"reduce-scatter", reduce_scatter},
             {"exscan", exscan},
             {"put", put},
             {"get", get},
             {"fetch-add", fetch_add},
             {"put-signal", put_signal},
             {"ping-pong", ping_pong},
             {"stream", stream},
             {"wake-up", wake_up}};

// Sends a block to each rank.
static bool sends_blocks(enum kind kind) {
    bool from_root = kind == SCATTER || kind == SCATTERV;
    return kind == ALLTOALL || kind == ALLTOALLV || kind == REDUCE_SCATTER || (from_root && rank == 0);
}

// Whether it is one of those with blocks, which have a common start.
static bool is_blockwise(enum kind kind) { return kind >= REDUCE && kind <= EXSCAN; }

static void prepare(enum kind kind, long turn, size_t step) {
    double first = first_value(turn, kind == BROADCAST ? 0 : rank);
    if (kind == ALLREDUCE || kind == ALLREDUCE_WITH) fill(send, elements, first, step);
    if (kind == ALLGATHERV) fill(send, counts[rank], first, step);
    if (kind == BROADCAST && rank == 0) fill(recv, elements, first, step);
    prepared = turn;
    if (kind >= PING_PONG) fill(send, elements, first, step);
    if (kind == PUT || kind == PUT_SIGNAL || kind == REDUCE || kind == GATHER || kind == GATHERV || kind == EXSCAN)
        fill(send, elements, first, step);
    if (sends_blocks(kind))
        for (int to = 0; to < ranks; to++) fill(send + to * elements, elements, first + (double)to * elements, step);
    if (kind == GET && step == 1) fill(shared, elements, first, step), MPI_Win_sync(window);
}

static int is_right(enum kind kind, long first, long last) {
    double sums[2] = {0, 0};
    int right = 1;
    switch (kind) {
    case BARRIER:
        return 1;
    case ALLREDUCE:
    case ALLREDUCE_WITH:
        for (int of = 0; of < ranks; of++) sums[0] += first_value(first, of), sums[1] += first_value(last, of);
        return is_filled(recv, elements, sums[0], sums[1], ranks);
    case ALLGATHERV:
        for (int of = 0; of < ranks; of++)
            right &= is_filled(recv + displs[of], counts[of], first_value(first, of), first_value(last, of), 1);
        return right;
    case BROADCAST:
        return is_filled(recv, elements, first_value(first, 0), first_value(last, 0), 1);
    case REDUCE:
    case EXSCAN: {
        int summed = kind == REDUCE ? ranks : rank;
        if (kind == REDUCE ? rank != 0 : rank == 0) return 1;
        for (int of = 0; of < summed; of++) sums[0] += first_value(first, of), sums[1] += first_value(last, of);
        return is_filled(recv, elements, sums[0], sums[1], summed);
    }
    case REDUCE_SCATTER: {
        double offset = (double)ranks * rank * elements;
        for (int of = 0; of < ranks; of++) sums[0] += first_value(first, of), sums[1] += first_value(last, of);
        return is_filled(recv, elements, sums[0] + offset, sums[1] + offset, ranks);
    }
    case GATHER:
    case GATHERV:
    case SCATTER:
    case SCATTERV:
    case ALLTOALL:
    case ALLTOALLV: {
        bool from_root = kind == SCATTER || kind == SCATTERV, to_root = kind == GATHER || kind == GATHERV;
        for (int block = 0; block < (from_root ? 1 : to_root && rank != 0 ? 0 : ranks); block++) {
            int from = from_root ? 0 : block;
            double offset = to_root ? 0 : (double)rank * elements;
            right &= is_filled(recv + block * elements, elements, first_value(first, from) + offset,
                               first_value(last, from) + offset, 1);
        }
        return right;
    }
    case GET:
        return is_filled(recv, elements, first_value(first, next()), first_value(first, next()), 1);
    case PUT:
    case PUT_SIGNAL: {
        int from = (rank + ranks - 1) % ranks;
        MPI_Win_sync(window);
        return is_filled(shared, elements, first_value(first, from), first_value(last, from), 1);
    }
    case FETCH_ADD:
        MPI_Win_sync(words);
        return rank != 0 || *word == last * ranks;
    case PING_PONG:
    case STREAM:
    case WAKE_UP: {
        int from = partner();
        if (from < 0) return 1;
        if (received < first) return kind != WAKE_UP || rank % 2 == 0;
        if (kind == WAKE_UP) return recv[0] == first_value(received, from);
        return is_filled(recv, elements, first_value(first, from), first_value(received, from), 1);
    }
    }
    return 0;
}

// The slowest rank's time per call, in seconds.
static double repetition(enum kind kind, long *turn, int calls, bool unchanged) {
    long first = unchanged ? 1 : *turn + 1;
    bool written = unchanged && *turn > 0;
    *turn = unchanged ? 1 : *turn + calls;
    if (!written) prepare(kind, first, 1);
    if (written) cases[kind].call();
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now(), together = 0;
    bool common_start = is_blockwise(kind);
    for (int call = 0; call < calls; call++) {
        if (call > 0 && !unchanged) prepare(kind, first + call, PAGE);
        if (common_start) MPI_Barrier(MPI_COMM_WORLD), begin = now();
        cases[kind].call();
        if (common_start) together += now() - begin;
    }
    double mine = (common_start ? together : now() - begin) / calls, slowest;
    if (kind == WAKE_UP) mine = took;
    // On a processor that ranks share, the check would be in the time of those that have not learnt yet that the call has ended.
    MPI_Barrier(MPI_COMM_WORLD);
    if (!is_right(kind, first, *turn)) {
        fprintf(stderr, "rank %d: the result of %s of %zu values is wrong\n", rank, cases[kind].name, elements);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(enum kind kind, size_t bytes, double seconds, bool unchanged) {
    elements = bytes / sizeof(double);
    counts = buffer(ranks, sizeof *counts), displs = buffer(ranks, sizeof *displs);
    for (int of = 0, displ = 0; of < ranks; displ += counts[of++]) {
        counts[of] = elements / ranks + ((size_t)of < elements % ranks);
        displs[of] = displ;
    }
    block_counts = buffer(ranks, sizeof *counts), block_displs = buffer(ranks, sizeof *displs);
    for (int of = 0; of < ranks; of++) block_counts[of] = elements, block_displs[of] = of * elements;
    messages = received = 0;
    if (kind == ALLREDUCE || kind == ALLREDUCE_WITH) send = buffer(elements, sizeof *send);
    if (kind == ALLGATHERV) send = buffer(counts[rank], sizeof *send);
    if (kind >= PING_PONG) send = buffer(elements, sizeof *send);
    if (kind >= REDUCE && kind < PING_PONG) send = buffer(ranks * elements, sizeof *send);
    if (kind != BARRIER) recv = buffer(is_blockwise(kind) ? ranks * elements : elements, sizeof *recv);
    if (kind >= PUT && kind <= PUT_SIGNAL) {
        MPI_Win_allocate(bytes, sizeof *shared, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &window);
        MPI_Win_allocate(sizeof *word, sizeof *word, MPI_INFO_NULL, MPI_COMM_WORLD, &word, &words);
        memset(shared, 0, bytes), *word = 0, turn_of_signal = 0;
        MPI_Win_lock_all(0, window), MPI_Win_lock_all(0, words);
        MPI_Barrier(MPI_COMM_WORLD);
    }

    long turn = 0;
    repetition(kind, &turn, 1, unchanged);
    int calls = 1;
    double whole;
    for (;;) {
        double begin = now();
        double each = repetition(kind, &turn, calls, unchanged);
        whole = now() - begin;
        if (bytes >= LARGE || kind == WAKE_UP || calls == MOST_CALLS || each * calls >= LONG_ENOUGH) break;
        calls = 2 * calls < MOST_CALLS ? 2 * calls : MOST_CALLS;
    }
    double fitting = seconds / whole;
    int repetitions = fitting < FEWEST_REPETITIONS ? FEWEST_REPETITIONS
                      : fitting > MOST_REPETITIONS ? MOST_REPETITIONS
                                                   : (int)fitting;
    MPI_Bcast(&repetitions, 1, MPI_INT, 0, MPI_COMM_WORLD);
    double *times = buffer(repetitions, sizeof *times);
    for (int i = 0; i < repetitions; i++) times[i] = 1e6 * repetition(kind, &turn, calls, unchanged);
    qsort(times, repetitions, sizeof *times, ascending);
    if (rank == 0) {
        double median = (times[(repetitions - 1) / 2] + times[repetitions / 2]) / 2;
        printf("{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"buffers\":\"%s\",\"median_us\":%.6g,\"min_us\":%.6g,\"max_us\":%.6g,"
               "\"repetitions\":%d}\n",
               cases[kind].name, bytes, ranks, unchanged ? "unchanged" : "renewed", median, times[0], times[repetitions - 1], repetitions);
        fflush(stdout);
    }
    if (kind >= PUT && kind <= PUT_SIGNAL) {
        MPI_Win_unlock_all(window), MPI_Win_unlock_all(words);
        MPI_Win_free(&window), MPI_Win_free(&words);
    }
    free(times), free(send), free(recv), free(counts), free(displs), free(block_counts), free(block_displs);
    send = recv = NULL;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Op_create(sum, true, &own_sum);
    if (argc == 2 && !strcmp(argv[1], "start-up")) {
        MPI_Barrier(MPI_COMM_WORLD);
        printf("%.9f\n", now());
    } else {
        for (int i = 2; i < argc; i++) {
            for (int kind = BARRIER; kind <= WAKE_UP; kind++) {
                size_t length = strlen(cases[kind].name);
                if (!strncmp(argv[i], cases[kind].name, length) && argv[i][length] == ':') {
                    char *end;
                    size_t bytes = strtoull(argv[i] + length + 1, &end, 10);
                    measure(kind, bytes, atof(argv[1]), !strcmp(end, ":unchanged"));
                }
            }
        }
    }
    MPI_Op_free(&own_sum);
    MPI_Finalize();
}
