// Package montgomery raises eight numbers to powers at once, each by a modulus and an exponent of its own: the work of
// RSA signatures, on the CPU's vector units (AVX-512 IFMA).
//
// A number is digits of 52 bits, ten to a block. A Power holds eight of them side by side, a lane each, so that one
// instruction multiplies a digit of all eight. Products are reduced by Montgomery's method without a final
// subtraction: R = 2^(520*blocks) is more than four times each modulus, and numbers below twice the modulus stay
// so (C. D. Walter, Montgomery exponentiation needs no final subtractions, 1999).
//
// Time and addresses do not depend on bases or exponents: the window has a fixed width, an exponent has the length
// of its modulus, and each look-up reads the whole table. They depend on the size of the moduli, which is public.
// The making of a Modulus is not constant in time: it happens once for a key, where the key is loaded.
package montgomery
