// Package defence drops and limits packets of a gateway's devices by their sources in XDP, before the kernel allocates
// anything for them. It keeps the verdicts; filter/ebpf has the program and its maps.
//
// Verdicts come from lists of the configuration, from the operator (Add), and from the gateway (Submit): clients beyond its
// limits, clients of listeners whose requests are malformed, and sources of what inspection drops. Submit writes the map
// of the kernel in the caller's goroutine, which takes a system call of some microseconds, so that a verdict is in force
// when it returns, however many loops poll. Run removes verdicts that have ended.
//
//	loop, worker ─ Submit ─> verdicts ─> maps of the kernel ─> the program at each device
//
// On one prefix there is one verdict: the operator's, or of those of the gateway one that drops, or the one that lasts longest.
//
// A verdict ends in the kernel by itself. The program is at a device in one of three ways: before the program of an AF_XDP
// driver, which it tail-calls; in a dispatcher that the device has; or alone, by a bpf_link. All end with the process.
//
// A source is an IPv4 address or an IPv6 /64 prefix, as for the gateway's limits. The package does not parse packets, and
// knows no configuration file (gateway/config).
package defence
