// Package expr compiles packet filter expressions in the syntax of pcap-filter(7), as tcpdump and
// Wireshark's capture filters take them.
//
// Compile parses a text for one link-layer header type and returns a Filter. A Filter is a tree of
// tests on loads from the packet, in three forms with one meaning: Match and a Matcher evaluate it
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

import "net/netip"

// Source configures where packets come from, which decides the address families that LinkNull, LinkEnc,
// LinkLoop and LinkPFLog headers hold.
type Source uint8

const (
	// FromFile is a file in the byte order of this host: any system may have written it.
	FromFile Source = iota
	// FromSwappedFile is a file in the opposite byte order.
	FromSwappedFile
	// FromHost is a capture on this Linux host.
	FromHost
)

// DefaultSnapLen is the value that CBPF returns for a packet that matches: more bytes than any packet has.
const DefaultSnapLen = 262144

// Options are the circumstances of a filter. The zero value is a filter for files, without names.
type Options struct {
	// SnapLen is the number of bytes of a matching packet that the classic BPF program requests; 0 is
	// DefaultSnapLen.
	SnapLen uint32
	// Netmask is the IPv4 mask of the network, for "ip broadcast". The zero value is unknown.
	Netmask netip.Addr
	// Source configures where packets come from.
	Source Source
	// Kernel permits inbound, outbound and ifindex on every link type, and lets vlan see a tag that
	// the kernel has taken out of the packet. Such a filter runs in a socket of Linux: only CBPF is of
	// use, the other forms reject packets whose metadata they would need.
	Kernel bool
	// Names resolves names.
	Names Names
}

// Filter is a compiled expression. It does not change and may be used by several goroutines.
type Filter struct {
	text    string
	link    LinkType
	snapLen uint32
	tree    *cond
	prog    program
}

// Compile compiles an expression for packets of a link type. An empty expression matches all of them.
// An error is an *Error.
func Compile(text string, link LinkType, opts Options) (*Filter, error) {
	f, err := compile(text, link, &opts)
	if e, ok := err.(*Error); ok {
		e.Text = text
		e.Offset = min(e.Offset, len(text))
	}
	return f, err
}

func compile(text string, link LinkType, opts *Options) (*Filter, error) {
	n, err := parse(text)
	if err != nil {
		return nil, err
	}
	tree, err := lower(n, link, opts)
	if err != nil {
		return nil, err
	}
	tree = factor(tree)
	f := &Filter{text: text, link: link, snapLen: opts.SnapLen, tree: tree}
	if f.snapLen == 0 {
		f.snapLen = DefaultSnapLen
	}
	f.prog = build(tree)
	return f, nil
}

// String returns the text of the expression.
func (f *Filter) String() string { return f.text }

// LinkType returns the type of packets that f is for.
func (f *Filter) LinkType() LinkType { return f.link }
