// Calls and long messages over MPI, between two ranks: what rows of `cargo bench --bench endpoint` are compared with.
//
//     mpi_calls SECONDS calls NUMBER      microseconds of a call of 8 bytes, with this number in flight
//     mpi_calls SECONDS message BYTES     gigabytes a second of messages that go to and fro, one at a time
//
// Rank 1 is the server: it sends back what it gets. Rank 0 measures for so many seconds, after a tenth of that, and prints the
// result. Both poll.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { END = 32767, MOST = 64 };

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Answers until it is told to end.
static void serve(char *data, int bytes) {
    for (;;) {
        MPI_Status status;
        int count;
        MPI_Recv(data, bytes, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (status.MPI_TAG == END) return;
        MPI_Get_count(&status, MPI_BYTE, &count);
        MPI_Send(data, count, MPI_BYTE, 0, status.MPI_TAG, MPI_COMM_WORLD);
    }
}

static long asked[MOST];
static char *data;
static int bytes, in_flight;
static long next;

// A call of 8 bytes is answered, and another one made in its place. Each has the place in flight for its tag.
static void begin(int place) {
    asked[place] = next++;
    MPI_Send(&asked[place], sizeof *asked, MPI_BYTE, 1, place, MPI_COMM_WORLD);
}

static void end(int place) {
    long answer;
    MPI_Recv(&answer, sizeof answer, MPI_BYTE, 1, place, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (answer != asked[place]) fail("an answer to another call");
}

static void call(long number) {
    int place = (int)(number % in_flight);
    end(place);
    begin(place);
}

// A message goes there and back.
static void round_trip(long number) {
    data[0] = (char)number;
    MPI_Send(data, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(data, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (data[0] != (char)number) fail("another message");
}

// The seconds of one repetition, on average.
static double repeated(double seconds, void (*repeat)(long)) {
    double start = MPI_Wtime();
    for (long number = 0, count = 0, warm = 0;; number++, count++) {
        // Several, so that the clock costs nothing.
        double elapsed = number % 16 == 0 || bytes ? MPI_Wtime() - start : 0;
        if (!warm && elapsed >= seconds / 10)
            warm = 1, count = 0, start = MPI_Wtime();
        else if (warm && count > 0 && elapsed >= seconds)
            return elapsed / count;
        repeat(number);
    }
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4 || ranks != 2) fail("mpi_calls SECONDS calls|message NUMBER, with two ranks");
    double seconds = atof(argv[1]);
    int number = atoi(argv[3]), calls = !strcmp(argv[2], "calls");
    if (number < 1 || (calls && number > MOST)) fail("a number in its range");
    in_flight = calls ? number : 0;
    bytes = calls ? 0 : number;
    size_t room = calls ? sizeof *asked : (size_t)bytes;
    data = calloc(room, 1);
    if (!data) fail("no memory");
    if (rank == 1) {
        serve(data, (int)room);
    } else if (calls) {
        for (int place = 0; place < in_flight; place++) begin(place);
        double each = repeated(seconds, call);
        for (int place = 0; place < in_flight; place++) end(place);
        printf("%.6g\n", each * 1e6);
    } else {
        printf("%.6g\n", 2.0 * bytes / repeated(seconds, round_trip) / 1e9);
    }
    if (rank == 0) MPI_Send(NULL, 0, MPI_BYTE, 1, END, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
