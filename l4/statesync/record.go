package statesync

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"time"

	"github.com/millrace/millrace/l4/datapath"
)

// A record on the wire, all numbers in network byte order:
//
//	0  flags     1: IPv6 client and service, 2: IPv6 backend, 4: direct mode, 8: SNAT, 16: FIN of the client, 32: of the backend
//	1  state     datapath.RecordState
//	2  protocol  of IP
//	3  idle      milliseconds since the last packet, 32 bits
//	7  client    address and port
//	   service   address and port
//	   backend   address and port
//	   source    address with SNAT, port unless direct
const (
	flagClient6 = 1 << iota
	flagTarget6
	flagDirect
	flagSNAT
	flagClientFIN
	flagBackendFIN
	allFlags = 1<<iota - 1
)

// maxRecord is the length of the longest record.
const maxRecord = 7 + 4*18

// ErrFormat is a message that is not as this version writes it.
var ErrFormat = errors.New("malformed message")

// appendRecord appends a record.
func appendRecord(b []byte, r *datapath.Record) []byte {
	flags := r.FINs << 4 & (flagClientFIN | flagBackendFIN)
	if r.Client.Addr().Is6() {
		flags |= flagClient6
	}
	if r.Target.Addr().Is6() {
		flags |= flagTarget6
	}
	switch {
	case r.Target.Port() == 0:
		flags |= flagDirect
	case r.Source.Addr() != r.Client.Addr():
		flags |= flagSNAT
	}
	b = append(b, flags, byte(r.State), r.Proto)
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(r.Idle.Milliseconds(), 0), math.MaxUint32)))
	for _, ap := range []netip.AddrPort{r.Client, r.VIP, r.Target} {
		b = append(b, ap.Addr().AsSlice()...)
		b = binary.BigEndian.AppendUint16(b, ap.Port())
	}
	if flags&flagSNAT != 0 {
		b = append(b, r.Source.Addr().AsSlice()...)
	}
	if flags&flagDirect == 0 {
		b = binary.BigEndian.AppendUint16(b, r.Source.Port())
	}
	return b
}

// parseRecord reads a record and returns what follows it.
func parseRecord(b []byte) (r datapath.Record, rest []byte, err error) {
	if len(b) < 7 || b[0]&^allFlags != 0 || b[0]&(flagDirect|flagSNAT) == flagDirect|flagSNAT {
		return r, nil, ErrFormat
	}
	flags := b[0]
	r.State, r.Proto, r.FINs = datapath.RecordState(b[1]), b[2], flags>>4&3
	r.Idle = time.Duration(binary.BigEndian.Uint32(b[3:])) * time.Millisecond
	p := parser{b: b[7:]}
	r.Client = p.addrPort(flags&flagClient6 != 0)
	r.VIP = p.addrPort(flags&flagClient6 != 0)
	r.Target = p.addrPort(flags&flagTarget6 != 0)
	if flags&flagDirect == 0 {
		from := r.Client.Addr()
		if flags&flagSNAT != 0 {
			from = p.addr(from.Is6())
		}
		r.Source = netip.AddrPortFrom(from, p.port())
	}
	if p.short || (flags&flagDirect != 0) != (r.Target.Port() == 0) {
		return r, nil, ErrFormat
	}
	return r, p.b, nil
}

// parser takes fields off a slice; short says that it was too short.
type parser struct {
	b     []byte
	short bool
}

func (p *parser) take(n int) []byte {
	if len(p.b) < n {
		p.short = true
		return make([]byte, n)
	}
	b := p.b[:n]
	p.b = p.b[n:]
	return b
}

// addr takes an address. One that is IPv4 in IPv6 form is none that a gateway has.
func (p *parser) addr(six bool) netip.Addr {
	if !six {
		return netip.AddrFrom4([4]byte(p.take(4)))
	}
	a := netip.AddrFrom16([16]byte(p.take(16)))
	p.short = p.short || a.Is4In6()
	return a
}

func (p *parser) port() uint16 { return binary.BigEndian.Uint16(p.take(2)) }

func (p *parser) addrPort(six bool) netip.AddrPort {
	a := p.addr(six)
	return netip.AddrPortFrom(a, p.port())
}
