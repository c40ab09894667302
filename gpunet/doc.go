// Package gpunet implements sockets for kernels of a GPU: thread blocks of a running kernel accept TCP connections of the stack, receive and
// send by the calls of gpunet.cuh (glisten, gaccept, grecv, gsend, ...).
//
// A Server makes the shared memory, which the kernel is launched with, and moves bytes on the loops of the stack. It does not use
// CUDA: the caller registers the memory with the driver and launches the kernel. docs/gpunet.md has an overview.
package gpunet
