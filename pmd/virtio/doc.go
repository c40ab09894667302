// Package virtio drives virtual network devices over vhost-user: packets pass through virtqueues in memory that two processes
// share, and no kernel is in their way.
//
// A Backend is the end that a virtual machine connects to: QEMU gives it the guest's memory, and it moves packets between the
// guest's virtqueues and frames, with one copy. A Frontend is the driver's end (virtio-user): it shares its arena and connects to
// a back end such as dpdk-testpmd's net_vhost or Open vSwitch, and the back end reads and writes the frames themselves.
//
//	          Backend                                       Frontend
//	guest -> virtqueue -> copy -> frame -> loop             back end -> frame -> loop
//	guest <- virtqueue <- copy <- frame <- loop             back end <- frame <- loop
//
// A goroutine of the device speaks the protocol (package vhostuser). The loop of a queue moves packets (package vring). They meet
// in the mutex of the queue: the loop only tries to lock it, so it never waits.
//
// # Trust
//
// A guest is not trusted. Every index, length and address that it writes is checked before use, and a guest that breaks its rings
// or takes its memory away loses its connection, nothing else (ErrGuest). It reaches its own memory only.
// The process at the other end of the socket is trusted with less than it could do: file descriptors for notification have to be
// eventfds and are made non-blocking, but it can make them blocking again. The back end of a Frontend has the whole
// arena, as every driver of a NIC with DMA.
//
// What the package does not do: live migration (VHOST_F_LOG_ALL), an IOMMU, and the control queue, which QEMU serves itself.
package virtio
