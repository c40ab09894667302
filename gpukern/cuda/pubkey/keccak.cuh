/* Keccak-f[1600] (FIPS 202 3.3). The state is 25 words of 64 bits; word x + 5y is lane (x, y). */
#ifndef MILLRACE_PK_KECCAK_H
#define MILLRACE_PK_KECCAK_H

#include "limbs.cuh"

enum {
	KECCAK_WORDS    = 25,
	KECCAK_ROUNDS   = 24,
	SHA3_256_WORDS  = 17, /* of a block */
	SHAKE128_WORDS  = 21,
	SHA3_SUFFIX     = 0x06, /* behind the message; the last byte of the block has its topmost bit set */
	SHAKE_SUFFIX    = 0x1f,
};

GK_CONST u64 keccak_rounds[KECCAK_ROUNDS] = {
	0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000,
	0x000000000000808b, 0x0000000080000001, 0x8000000080008081, 0x8000000000008009,
	0x000000000000008a, 0x0000000000000088, 0x0000000080008009, 0x000000008000000a,
	0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003,
	0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
	0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
};

GK_FN u64 keccak_rotate(u64 v, u32 n) { return v << n | v >> (64 - n); }

GK_SLOW void keccak(u64 *state)
{
	const u32 rotations[24] = {1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 2, 14, 27, 41, 56, 8, 25, 43, 62, 18, 39, 61, 20, 44};
	const u32 places[24] = {10, 7, 11, 17, 18, 3, 5, 16, 8, 21, 24, 4, 15, 23, 19, 13, 12, 2, 20, 14, 22, 9, 6, 1};
	u64 s[KECCAK_WORDS], c[5];

	PK_UNROLL
	for (int i = 0; i < KECCAK_WORDS; i++)
		s[i] = state[i];
	PK_LOOP
	for (int round = 0; round < KECCAK_ROUNDS; round++) {
		PK_UNROLL
		for (int x = 0; x < 5; x++)
			c[x] = s[x] ^ s[x + 5] ^ s[x + 10] ^ s[x + 15] ^ s[x + 20];
		PK_UNROLL
		for (int x = 0; x < 5; x++) {
			u64 d = c[(x + 4) % 5] ^ keccak_rotate(c[(x + 1) % 5], 1);
			PK_UNROLL
			for (int y = 0; y < 25; y += 5)
				s[x + y] ^= d;
		}
		u64 moved = s[1]; /* rho and pi: each word moves to the place of the next one */
		PK_UNROLL
		for (int i = 0; i < 24; i++) {
			u64 next = s[places[i]];
			s[places[i]] = keccak_rotate(moved, rotations[i]);
			moved = next;
		}
		PK_UNROLL
		for (int y = 0; y < 25; y += 5) {
			PK_UNROLL
			for (int x = 0; x < 5; x++)
				c[x] = s[x + y];
			PK_UNROLL
			for (int x = 0; x < 5; x++)
				s[x + y] = c[x] ^ (~c[(x + 1) % 5] & c[(x + 2) % 5]);
		}
		s[0] ^= keccak_rounds[round];
	}
	PK_UNROLL
	for (int i = 0; i < KECCAK_WORDS; i++)
		state[i] = s[i];
}

/* keccak_clear begins a message. The compiler would make single bytes of zeros that it knows. */
GK_FN void keccak_clear(u64 *state)
{
	u64 zero = 0;
	#ifndef GK_HOST
	__asm__ volatile("" : "+l"(zero));
#endif
	PK_UNROLL
	for (int i = 0; i < KECCAK_WORDS; i++)
		state[i] = zero;
}

#endif
