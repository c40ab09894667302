/* ring.c - messages of many sizes around the ranks: each adds its number to every byte, and rank 0 compares. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	int rank, ranks;
	long bytes = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	unsigned char *b = malloc(4 << 20), *want = malloc(4 << 20);
	for (int size = 1; size <= 4 << 20; size *= 4)
		for (int round = 0; round < (size < 65536 ? 200 : 10); round++) {
			if (rank == 0) {
				for (int i = 0; i < size; i++)
					want[i] = b[i] = (unsigned char)(i * 7 + round);
				MPI_Send(b, size, MPI_BYTE, next, round, MPI_COMM_WORLD);
			}
			MPI_Recv(b, size, MPI_BYTE, before, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			for (int i = 0; i < size; i++)
				b[i] = (unsigned char)(b[i] + rank);
			if (rank != 0)
				MPI_Send(b, size, MPI_BYTE, next, round, MPI_COMM_WORLD);
			int sum = ranks * (ranks - 1) / 2;
			for (int i = 0; rank == 0 && i < size; i++)
				if (b[i] != (unsigned char)(want[i] + sum)) {
					fprintf(stderr, "size %d, round %d, byte %d\n", size, round, i);
					MPI_Abort(MPI_COMM_WORLD, 1);
				}
			bytes += size;
		}
	if (rank == 0)
		printf("equal %ld\n", bytes * ranks);
	MPI_Finalize();
	return 0;
}
