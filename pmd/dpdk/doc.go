// Package dpdk drives devices by DPDK's poll-mode drivers: NICs that DPDK has taken from the kernel, and its virtual
// devices.
//
// DPDK is a C library whose receive and transmit functions are inline and whose structures change each year. A small
// library in C, the shim (folder shim, built by `make dpdk`), is compiled against the DPDK that is installed, one for
// each ABI number, and opened at run time. No program of Go is linked with DPDK: where the shim or DPDK is missing, and in
// programs without a loader of libraries, Open returns an UnavailableError.
//
// Frames are those of the caller's arena. Each has an mbuf at a fixed place, so that DPDK's drivers receive into the
// arena and send from it, and no packet is copied between DPDK and the loop:
//
//	ring.Pool --lend--> mempool of the queue --DPDK driver--> Rx: Desc in the batch
//	ring.Pool <-return- mempool of the queue <-DPDK driver--- Tx: Desc of the batch
//
// One call of the shim moves a whole batch. No pointer to memory of Go outlives its call.
//
// What it does not do: DPDK's own threads (lcores) run nothing, and secondary processes are not supported.
package dpdk
