// Package shimtest has no code: its tests run programs in C with the preloaded library on a stack, and look at what a
// program's life does to it: fork, exec, closed descriptors, signals, the end of the program or of the node.
package shimtest
