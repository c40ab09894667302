// Package cuda runs the kernels of gpukern on NVIDIA GPUs. It opens libcuda.so.1 when a program requests
// a device, so that one binary runs with and without a driver; it needs neither cgo nor a CUDA toolkit. Loading
// takes the C library's dynamic linker: only programs that import package gpukern/cuda/loader have it, others are static.
//
// The kernels are the .cu files of this folder, compiled to PTX that is committed (ptx/) and embedded;
// the driver translates it for the GPU that it finds.
//
// A Device is a GPU and the goroutine that owns its context: that goroutine stays on one thread and makes
// all calls to the driver. None of them lies on the path of a packet: small batches go through words in
// memory that both sides map, large ones through streams, some calls for many thousands of packets.
//
// Memory comes in three kinds. A Buffer lies on the device. A Block is host memory of this package that the
// device maps, for descriptors, doorbells and results. Register makes memory of others, such as a
// ring.Arena, readable to the device in place. None of it belongs to the Go heap, and no asynchronous
// call gets a pointer into that heap.
package cuda
