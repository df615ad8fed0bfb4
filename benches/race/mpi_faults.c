// A rank for experiments with faults: the counterpart of `survivor.rs`, over MPI.
//
//     mpi_faults loop [RANK MIB]    barriers and small reductions until an error; RANK allocates MIB of memory
//     mpi_faults operations         rank 0 calls a barrier, the others a reduction
//     mpi_faults lengths            a reduction, of fewer values on rank 0
//     mpi_faults roots              a broadcast, with root 0 on rank 0 and root 1 on the others
//
// Prints `ready RANK PID CLOCK`, then `error RANK CLOCK TEXT` or `returned RANK CLOCK right|wrong`, and does not end.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, ranks;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void live_on(void) {
    fflush(stdout);
    for (;;) pause();
}

static void check(int status) {
    if (status == MPI_SUCCESS) return;
    double at = now();
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(status, text, &length);
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    printf("error %d %.9f %s\n", rank, at, text);
    live_on();
}

static int reduce(int count) {
    double *send = malloc(count * sizeof *send), *recv = malloc(count * sizeof *recv);
    for (int i = 0; i < count; i++) send[i] = i, recv[i] = -1;
    check(MPI_Allreduce(send, recv, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    int right = 1;
    for (int i = 0; i < count; i++) right &= recv[i] == (double)i * ranks;
    free(send), free(recv);
    return right;
}

static int broadcast(int root, int count) {
    int *buffer = malloc(count * sizeof *buffer);
    for (int i = 0; i < count; i++) buffer[i] = rank == root ? i + root : -1;
    check(MPI_Bcast(buffer, count, MPI_INT, root, MPI_COMM_WORLD));
    int right = 1;
    for (int i = 0; i < count; i++) right &= buffer[i] == i + root;
    free(buffer);
    return right;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const char *mode = argc > 1 ? argv[1] : "loop";
    if (argc == 4 && atoi(argv[2]) == rank) {
        size_t bytes = (size_t)atoi(argv[3]) << 20;
        memset(malloc(bytes), 1, bytes);
    }
    check(MPI_Barrier(MPI_COMM_WORLD));
    printf("ready %d %d %.9f\n", rank, getpid(), now());
    fflush(stdout);
    int right = 1;
    if (!strcmp(mode, "operations")) {
        if (rank == 0) check(MPI_Barrier(MPI_COMM_WORLD));
        else right = reduce(1000);
    } else if (!strcmp(mode, "lengths")) {
        right = reduce(rank == 0 ? 1000 : 2000);
    } else if (!strcmp(mode, "roots")) {
        right = broadcast(rank == 0 ? 0 : 1, 1000);
    } else {
        for (;;) {
            check(MPI_Barrier(MPI_COMM_WORLD));
            reduce(4);
        }
    }
    printf("returned %d %.9f %s\n", rank, now(), right ? "right" : "wrong");
    live_on();
}
