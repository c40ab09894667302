// AES-GCM over 512 bits: four blocks to a register.
//
// Blocks are hashed with their bytes reversed, where GHASH is POLYVAL with the key H*x (RFC 8452, appendix A): dot(a, b) is
// a*b*x^-128 modulo x^128+x^127+x^126+x^121+1. Several blocks are multiplied by descending powers of the key and reduced once.
//
//	Z0-Z3    counters, then texts         Z13      reverses the bytes of a block
//	Z4       powers                       Z14      counters to come, reversed
//	Z6-Z8    sums: low, middle, high      Z16-Z29  round keys 0 to 13 (AES-128: 9)
//	Z9-Z10   products                     Z30      the last round key
//	Z11      the hash                     Z5, Z12, Z15, Z31  blocks to hash, reversed
//
// The cipher of the first counter, for the tag, is in R10 and R11.

// Offsets in an Image.
#define ROUNDS 4
#define ROUND 16
#define HASHKEY 256
#define POWERS 304 // so that those for a chunk are aligned

#define ROUND_KEY(i, z) \
	VBROADCASTI32X4 (ROUND+16*i)(DI), z;

// KEYS loads the round keys of the Image at DI, and leaves the number of rounds in R12.
#define KEYS \
	MOVL ROUNDS(DI), R12; \
	ROUND_KEY(0, Z16) \
	ROUND_KEY(1, Z17) \
	ROUND_KEY(2, Z18) \
	ROUND_KEY(3, Z19) \
	ROUND_KEY(4, Z20) \
	ROUND_KEY(5, Z21) \
	ROUND_KEY(6, Z22) \
	ROUND_KEY(7, Z23) \
	ROUND_KEY(8, Z24) \
	ROUND_KEY(9, Z25) \
	ROUND_KEY(10, Z26) \
	ROUND_KEY(11, Z27) \
	ROUND_KEY(12, Z28) \
	ROUND_KEY(13, Z29) \
	MOVQ R12, AX; \
	SHLQ $4, AX; \
	VBROADCASTI32X4 ROUND(DI)(AX*1), Z30;

// One round for one, two or four registers.
#define ROUND1(k) \
	VAESENC k, Z0, Z0;
#define ROUND2(k) \
	VAESENC k, Z0, Z0; \
	VAESENC k, Z1, Z1;
#define ROUND4(k) \
	VAESENC k, Z0, Z0; \
	VAESENC k, Z1, Z1; \
	VAESENC k, Z2, Z2; \
	VAESENC k, Z3, Z3;

// ROUNDS_OF runs rounds 1 to 9 or 13.
#define ROUNDS_OF(f, skip) \
	f(Z17) \
	f(Z18) \
	f(Z19) \
	f(Z20) \
	f(Z21) \
	f(Z22) \
	f(Z23) \
	f(Z24) \
	f(Z25) \
	CMPQ R12, $10; \
	JEQ skip; \
	f(Z26) \
	f(Z27) \
	f(Z28) \
	f(Z29) \
skip:

#define COUNTER(z) \
	VPSHUFB Z13, Z14, z; \
	VPADDD steps<>(SB), Z14, Z14; \
	VPXORQ Z16, z, z;

// MULTIPLY starts the sums with the product of x and the powers at p, and MULTIPLY_ADD adds it.
#define MULTIPLY(p, x) \
	VMOVDQU64 p, Z4; \
	VPCLMULQDQ $0x00, Z4, x, Z6; \
	VPCLMULQDQ $0x11, Z4, x, Z8; \
	VPCLMULQDQ $0x01, Z4, x, Z7; \
	VPCLMULQDQ $0x10, Z4, x, Z9; \
	VPXORQ Z9, Z7, Z7;

#define MULTIPLY_ADD(p, x) \
	VMOVDQU64 p, Z4; \
	VPCLMULQDQ $0x00, Z4, x, Z9; \
	VPCLMULQDQ $0x11, Z4, x, Z10; \
	VPXORQ Z9, Z6, Z6; \
	VPXORQ Z10, Z8, Z8; \
	VPCLMULQDQ $0x01, Z4, x, Z9; \
	VPCLMULQDQ $0x10, Z4, x, Z10; \
	VPTERNLOGQ $0x96, Z9, Z10, Z7;

// REDUCE makes the hash of the sums: each of four lanes is reduced, and then they are added.
#define REDUCE_LANES \
	VPCLMULQDQ $0x10, polynomial<>(SB), Z6, Z9; \
	VPSHUFD $0x4e, Z6, Z6; \
	VPTERNLOGQ $0x96, Z9, Z6, Z7; \
	VPCLMULQDQ $0x10, polynomial<>(SB), Z7, Z9; \
	VPSHUFD $0x4e, Z7, Z7; \
	VPTERNLOGQ $0x96, Z9, Z7, Z8;

#define REDUCE \
	REDUCE_LANES \
	VEXTRACTI64X4 $1, Z8, Y9; \
	VPXORQ Y9, Y8, Y8; \
	VEXTRACTI32X4 $1, Y8, X9; \
	VPXORQ X9, X8, X11;

// MULTIPLY_ONE starts the sums with the product of the block X5 and the key itself, in one lane.
#define MULTIPLY_ONE \
	VMOVDQU64 (POWERS+256)(DI), X4; \
	VPCLMULQDQ $0x00, X4, X5, X6; \
	VPCLMULQDQ $0x11, X4, X5, X8; \
	VPCLMULQDQ $0x01, X4, X5, X7; \
	VPCLMULQDQ $0x10, X4, X5, X9; \
	VPXORQ X9, X7, X7;

// CRYPT4 xors 256 bytes of text with the cipher of counters.
#define CRYPT(at, z) \
	VPXORQ at, z, z; \
	VMOVDQU64 z, at;
#define CRYPT4 \
	CRYPT((SI), Z0) \
	CRYPT(64(SI), Z1) \
	CRYPT(128(SI), Z2) \
	CRYPT(192(SI), Z3)

// REVERSE4 prepares 256 bytes for HASH4, which hashes them.
#define REVERSE4(a, b, c, d) \
	VPSHUFB Z13, a, Z5; \
	VPSHUFB Z13, b, Z12; \
	VPSHUFB Z13, c, Z15; \
	VPSHUFB Z13, d, Z31;
#define LOAD4 \
	VMOVDQU64 (SI), Z5; \
	VMOVDQU64 64(SI), Z12; \
	VMOVDQU64 128(SI), Z15; \
	VMOVDQU64 192(SI), Z31;
#define HASH4 \
	VPXORQ Z11, Z5, Z5; \
	MULTIPLY((POWERS+16)(DI), Z5) \
	MULTIPLY_ADD((POWERS+80)(DI), Z12) \
	MULTIPLY_ADD((POWERS+144)(DI), Z15) \
	MULTIPLY_ADD((POWERS+208)(DI), Z31) \
	REDUCE

// MASK makes a mask for the bytes of one of four registers, of R8 bytes, and leaves how many are behind it.
#define MASK(k) \
	BZHIQ R8, R9, AX; \
	KMOVQ AX, k; \
	XORL AX, AX; \
	SUBQ $64, R8; \
	CMOVQCS AX, R8;

// SEAL_PART crypts those bytes of a register that k names, and leaves the ciphertext in Z5.
#define SEAL_PART(at, k, z) \
	VMOVDQU8.Z at, k, Z5; \
	VPXORQ Z5, z, z; \
	VMOVDQU8 z, k, at; \
	VMOVDQU8.Z z, k, Z5;
#define OPEN_PART(at, k, z) \
	VMOVDQU8.Z at, k, Z5; \
	VPXORQ Z5, z, z; \
	VMOVDQU8 z, k, at;

#define HASH_PART(at) \
	VPSHUFB Z13, Z5, Z5; \
	MULTIPLY_ADD(at, Z5)

// LENGTHS_ADD adds the product of the block of lengths (SP 800-38D 7.1 step 5) to the sums.
#define LENGTHS_BLOCK \
	SHLQ $3, BX; \
	SHLQ $3, R13; \
	VMOVQ BX, X5; \
	VPINSRQ $1, R13, X5, X5;
#define LENGTHS_ADD \
	LENGTHS_BLOCK \
	VMOVDQU64 (POWERS+256)(DI), X4; \
	VPCLMULQDQ $0x00, X4, X5, X9; \
	VPCLMULQDQ $0x11, X4, X5, X10; \
	VPXORQ Z9, Z6, Z6; \
	VPXORQ Z10, Z8, Z8; \
	VPCLMULQDQ $0x01, X4, X5, X9; \
	VPCLMULQDQ $0x10, X4, X5, X10; \
	VPTERNLOGQ $0x96, Z9, Z10, Z7;
