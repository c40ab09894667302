// This file is empty: with an assembly file in the package, the compiler accepts a function without a
// body (goyield in yield.go).
