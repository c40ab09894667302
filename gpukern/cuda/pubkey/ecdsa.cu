/* Signatures of ECDSA on P-256 and P-384: ecdsa.cuh. */
#include "ecdsa.cuh"

enum { PK_ECDSA_THREADS = 128, PK_SOLVE_THREADS = 32 };

GK_KERNEL(pk_p256_comb, struct pk_ecdsa, PK_ECDSA_THREADS) { ec_comb<p256>(p); }
GK_KERNEL(pk_p256_solve, struct pk_ecdsa, PK_SOLVE_THREADS) { ec_solve<p256>(p); }
GK_KERNEL(pk_p256_verify, struct pk_ecdsa, PK_SOLVE_THREADS) { ec_verify<p256>(p); }
GK_KERNEL(pk_p384_comb, struct pk_ecdsa, PK_ECDSA_THREADS) { ec_comb<p384>(p); }
GK_KERNEL(pk_p384_solve, struct pk_ecdsa, PK_SOLVE_THREADS) { ec_solve<p384>(p); }
GK_KERNEL(pk_p384_verify, struct pk_ecdsa, PK_SOLVE_THREADS) { ec_verify<p384>(p); }
