// Package consttime tests that code does not depend on secrets: by the branches that it takes, which are the same for every
// secret (Branches), and by its time, whose distributions are (Timing).
//
// Branches runs a part of the test binary as a child under ptrace(2), and stops it at every branch or instruction. That is
// exact, and independent of load. It does not see addresses of data. Timing sees all that the CPU's time depends
// on, but statistically (O. Reparaz, J. Balasch, I. Verbauwhede, Dude, is my code constant time?, DATE 2017).
package consttime
