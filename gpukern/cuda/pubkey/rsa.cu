/* Signatures of RSA with moduli of 2048, 3072 and 4096 bits: rsa.cuh. */
#include "rsa.cuh"

GK_KERNEL(pk_rsa2048_power, struct pk_rsa, RSA_THREADS) { rsa_power<32>(p); }
GK_KERNEL(pk_rsa2048_join, struct pk_rsa, RSA_THREADS) { rsa_join<32>(p); }
GK_KERNEL(pk_rsa3072_power, struct pk_rsa, RSA_THREADS) { rsa_power<48>(p); }
GK_KERNEL(pk_rsa3072_join, struct pk_rsa, RSA_THREADS) { rsa_join<48>(p); }
GK_KERNEL(pk_rsa4096_power, struct pk_rsa, RSA_THREADS) { rsa_power<64>(p); }
GK_KERNEL(pk_rsa4096_join, struct pk_rsa, RSA_THREADS) { rsa_join<64>(p); }
