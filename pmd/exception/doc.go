// Package exception passes to the kernel what no steering rule claims of a device that the kernel has lost: a NIC that
// DPDK has taken, or an interface whose packets all go to DPDK's AF_XDP driver. DPDK calls it the exception path. Without
// it a machine with one NIC is not reachable any more once Millrace has that NIC.
//
// A Path wraps the queues of a device and a TAP interface with the device's link address, on which the kernel keeps its
// addresses and routes:
//
//	device -Rx-> claimed by a rule?  yes -> the loop
//	                                 no  -> TAP -> kernel (ssh, ARP, neighbour discovery, DHCP)
//	device <-Tx- the loop
//	device <-Tx- TAP <- kernel
//
// The rules are those of pmd.Rule, and so is the division of ARP and neighbour discovery: requests for a claimed address
// and the answers that are sent to it are the loop's, all others the kernel's. The kernel's neighbour table is filled by
// the TAP interface, so next hops that are looked up there need no static entries.
//
// What it does not do: it enables no offload on the TAP interface. Each packet to or from the kernel costs a system
// call, so this path is for management traffic.
package exception
