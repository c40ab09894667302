/* ChaCha20 (RFC 8439 2.3): a block of the key stream to a lane. */
#ifndef MILLRACE_SY_CHACHA_H
#define MILLRACE_SY_CHACHA_H

#include "text.cuh"

enum { SY_STREAM = 64 }; /* bytes of a block of the key stream */

GK_FN void sy_quarter(u32 *x, int a, int b, int c, int d)
{
	x[a] += x[b];
	x[d] = gk_rotate(x[d] ^ x[a], 16);
	x[c] += x[d];
	x[b] = gk_rotate(x[b] ^ x[c], 20);
	x[a] += x[b];
	x[d] = gk_rotate(x[d] ^ x[a], 24);
	x[c] += x[d];
	x[b] = gk_rotate(x[b] ^ x[c], 25);
}

GK_FN void sy_chacha_block(u32 *x, const u32 *key, const u32 *nonce, u32 counter)
{
	u32 first[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
	SY_UNROLL
	for (int i = 0; i < 8; i++)
		first[4 + i] = key[i];
	first[12] = counter;
	SY_UNROLL
	for (int i = 0; i < 3; i++)
		first[13 + i] = nonce[i];
	SY_UNROLL
	for (int i = 0; i < 16; i++)
		x[i] = first[i];
	SY_LOOP
	for (int round = 0; round < 10; round++) {
		sy_quarter(x, 0, 4, 8, 12);
		sy_quarter(x, 1, 5, 9, 13);
		sy_quarter(x, 2, 6, 10, 14);
		sy_quarter(x, 3, 7, 11, 15);
		sy_quarter(x, 0, 5, 10, 15);
		sy_quarter(x, 1, 6, 11, 12);
		sy_quarter(x, 2, 7, 8, 13);
		sy_quarter(x, 3, 4, 9, 14);
	}
	SY_UNROLL
	for (int i = 0; i < 16; i++)
		x[i] += first[i];
}

#endif
