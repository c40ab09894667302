// Package expr compiles packet filter expressions in the syntax of pcap-filter(7), as tcpdump and
// Wireshark's capture filters take them.
//
// Compile parses a text for one link-layer header type and returns a Filter. A Filter is a tree of
// tests on loads from the packet, in three forms with one meaning: Match and MatchBatch evaluate it
// without allocating, CBPF gives classic BPF for sockets, and XDP gives eBPF for the hook in the
// driver.
//
// The meaning is that of libpcap's code before its optimizer. Tests run from left to right and stop
// as soon as the result is known. A load beyond the end of the packet rejects the packet, whatever
// the rest of the expression says: "tcp[20] = 1 or udp" rejects a TCP segment of 20 bytes.
//
// The package reads no file, no database of the system and no clock: names of hosts, ports and
// protocols are resolved by functions of the caller (Names). It captures nothing and attaches
// nothing.
package expr
