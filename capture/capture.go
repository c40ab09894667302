// Package capture reads and writes packet captures: pcap (microseconds and nanoseconds, both byte
// orders, the modified form of old Linux systems) and pcapng. It reads snoop (RFC 1761) as well.
//
// Captures come from files, pipes and memory (Open, NewReader, NewMemory) and go to files and pipes
// (Create, NewWriter). A Reader is streaming: it holds one window of the file, returns each
// record without copying it and allocates nothing per record. pmd/pcap turns records into batches
// and back; ToEthernet gives packets of other link types the Ethernet header that the pipeline
// expects.
//
// A damaged file yields its records up to the damage and then an *Error that names the place. The
// package does not decode packets and does not keep name resolution, secrets or custom blocks.
//
// Formats: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng, the link-layer header types of
// tcpdump.org.
package capture

import (
	"errors"
	"fmt"
)

// MaxRecord is the largest packet that is read or written, in bytes; the limit of libpcap. A length
// above it means that a file is damaged: a reader that believed it would allocate gigabytes.
const MaxRecord = 256 << 10

// Errors of the package: test with errors.Is. Damage is reported in an *Error.
var (
	ErrFormat    = errors.New("not a capture that can be read")
	ErrTruncated = errors.New("capture is truncated")
	ErrCorrupt   = errors.New("capture is corrupt")
	ErrLinkType  = errors.New("link type carries no Ethernet or IP packets")
	ErrNotIP     = errors.New("link header announces no IP packet")
	ErrRange     = errors.New("value does not fit the format")
	ErrClosed    = errors.New("capture is closed")
)

// Error is damage in a capture, with its place.
type Error struct {
	Path   string // file, where one is known
	Record int64  // number of the record, counted from 1; 0 is the file's header
	Offset int64  // of the record's or block's first byte; in the decompressed bytes of a gzip file
	What   string // what was expected and what is there
	Err    error  // ErrFormat, ErrTruncated, ErrCorrupt or the error of the read
}

// Error implements error.
func (e *Error) Error() string {
	place := fmt.Sprintf("record %d at offset %d", e.Record, e.Offset)
	if e.Record == 0 {
		place = fmt.Sprintf("header at offset %d", e.Offset)
	}
	if e.Path != "" {
		place = e.Path + ": " + place
	}
	return fmt.Sprintf("%s: %v: %s", place, e.Err, e.What)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Format is a file format.
type Format uint8

// The formats that are written; all are read.
const (
	FormatAuto   Format = iota // for Create: by the file's name; for NewWriter: pcapng
	FormatPcap                 // classic pcap, nanoseconds
	FormatPcapng               // pcapng, nanoseconds
	FormatSnoop                // Solaris' snoop, microseconds; read only
)

// String returns the format's usual name.
func (f Format) String() string {
	switch f {
	case FormatPcap:
		return "pcap"
	case FormatPcapng:
		return "pcapng"
	case FormatSnoop:
		return "snoop"
	}
	return "auto"
}

// Record is one captured packet.
type Record struct {
	Data      []byte   // the captured bytes
	Time      int64    // arrival, ns since the Unix epoch; 0 where the file has none (simple packet block)
	Len       int      // bytes of the packet on the wire: more than len(Data) where it was cut
	Interface int      // index in Reader.Interfaces, or the Writer's interface
	LinkType  LinkType // of its interface; a Writer uses its interface's instead
	Meta      Meta     // options of a pcapng packet block; pcap has none
}

// Truncated reports whether the capture holds less than the packet had on the wire.
func (r *Record) Truncated() bool { return len(r.Data) < r.Len }

// Meta holds the options of a pcapng packet block. Has has a bit for each that is set.
type Meta struct {
	Has      Fields
	Flags    PacketFlags
	Queue    uint32 // receive queue of the interface
	Drops    uint64 // packets lost by the interface since the packet before
	PacketID uint64 // same number, same packet, when it was captured at several places
	Verdict  []byte // first octet the kind (0 hardware, 1 eBPF TC, 2 eBPF XDP), then its value
	Comment  []byte // UTF-8; the first one, where there are several
}

// Fields selects which fields of a Meta are set.
type Fields uint8

// The bits of Fields.
const (
	HasFlags Fields = 1 << iota
	HasQueue
	HasDrops
	HasPacketID
	HasVerdict
	HasComment
)

// PacketFlags is the flags word of a packet block (epb_flags, pcapng 4.3.1):
//
//	31            16 15       12 11  10   9  8   5 4   2 1 0
//	+---------------+-----------+---+---+---+-----+-----+---+
//	| link errors   | reserved  |TSO|csv|cnr| FCS |type |dir|
//	+---------------+-----------+---+---+---+-----+-----+---+
type PacketFlags uint32

// The directions, the lowest two bits of PacketFlags.
const (
	FlagInbound   PacketFlags = 1
	FlagOutbound  PacketFlags = 2
	flagDirection PacketFlags = 3
)

// Direction returns FlagInbound, FlagOutbound or 0 for unknown.
func (f PacketFlags) Direction() PacketFlags { return f & flagDirection }

// Interface is where packets were captured.
type Interface struct {
	LinkType    LinkType
	SnapLen     int // bytes kept of each packet; 0 is all
	FCSLen      int // bytes of frame check sequence at the end of each packet, where the file says so
	Name        string
	Description string
	Filter      string    // in the syntax of libpcap
	OS          string    // operating system of the interface's machine
	Hardware    string    // description of the interface's hardware
	Counters    *Counters // of the last interface statistics block; nil where there is none

	ticks ticks
}

// Counters are an interface's statistics (pcapng 4.6). What a file leaves out is 0.
type Counters struct {
	Start, End int64  // of the capture, ns since the Unix epoch
	Received   uint64 // packets received by the interface
	Dropped    uint64 // by the interface, for lack of resources
	Accepted   uint64 // by the filter
	OSDropped  uint64 // by the operating system
	Delivered  uint64 // to the program that captured
}
