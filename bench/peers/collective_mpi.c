// All-reduce of floats by MPI at one size: the peer of `millrace collective bench`, with the same iterations and the same figures.
//
//	bench-collective_mpi BYTES ITERATIONS
//
// Rank 0 prints a line of JSON: median_us (over iterations, of the slowest rank of each), min_us, cpu_us (of all ranks, for an operation).
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double cpu(void) {
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	int rank, ranks;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 3) {
		if (rank == 0)
			fprintf(stderr, "usage: bench-collective_mpi BYTES ITERATIONS\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	int n = (atoi(argv[1]) + 3) / 4, iterations = atoi(argv[2]);
	float *in = malloc(n * sizeof *in), *out = malloc(n * sizeof *out);
	double *times = malloc(iterations * sizeof *times), *slowest = malloc(iterations * sizeof *slowest);
	for (int i = 0; i < n; i++)
		in[i] = (rank * 13 + i) % 64;
	for (int i = 0; i < 4; i++)
		MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	double used = cpu();
	for (int i = 0; i < iterations; i++) {
		double begin = MPI_Wtime();
		MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		times[i] = (MPI_Wtime() - begin) * 1e6;
	}
	used = cpu() - used;
	for (int i = 0; i < n; i++) {
		float want = 0;
		for (int r = 0; r < ranks; r++)
			want += (r * 13 + i) % 64;
		if (out[i] != want) {
			fprintf(stderr, "element %d is %f, want %f\n", i, out[i], want);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
	double total;
	MPI_Reduce(times, slowest, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(&used, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		qsort(slowest, iterations, sizeof *slowest, ascending);
		printf("{\"median_us\": %.3f, \"min_us\": %.3f, \"cpu_us\": %.3f}\n", slowest[iterations / 2], slowest[0], total / iterations);
	}
	MPI_Finalize();
	return 0;
}
