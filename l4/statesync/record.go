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
//
// With flag 64, which only version 2 has, the windows of a TCP connection follow, of the client and then of the backend;
// with 128 segments have passed that were not followed:
//
//	0  scales    window scales: of the client in the lower half, of the backend in the upper
//	1  end       one past the highest sequence number sent (seqlo of pfsync)
//	5  limit     one past the highest that the other side lets it send (seqhi)
//	9  window    the largest window that it has offered, scaled (max_win)
//	13 acked     the highest acknowledgement sent
//	17 end, limit, window and acked of the backend
const (
	flagClient6 = 1 << iota
	flagTarget6
	flagDirect
	flagSNAT
	flagClientFIN
	flagBackendFIN
	allFlags1 = 1<<iota - 1 // of version 1

	flagWindows = 1 << (iota - 1)
	flagLoose
	allFlags = 1<<(iota-1) - 1
)

// maxRecord is the length of the longest record.
const maxRecord = 7 + 4*18 + windowsLen

// windowsLen is the length of the windows of a record.
const windowsLen = 1 + 2*16

// ErrFormat is a message that is not as this version writes it.
var ErrFormat = errors.New("malformed message")

// appendRecord appends a record of a version.
func appendRecord(b []byte, r *datapath.Record, version byte) []byte {
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
	windows := version >= 2 && r.Windows.Known
	if windows {
		flags |= flagWindows
		if r.Windows.Loose {
			flags |= flagLoose
		}
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
	if windows {
		b = append(b, r.Windows.Scales)
		for _, w := range r.Windows.Sides {
			for _, n := range []uint32{w.End, w.Limit, w.Most, w.Acked} {
				b = binary.BigEndian.AppendUint32(b, n)
			}
		}
	}
	return b
}

// flagsOf returns the flags that a record of a version may have.
func flagsOf(version byte) byte {
	if version < 2 {
		return allFlags1
	}
	return allFlags
}

// parseRecord reads a record of a version and returns what follows it.
func parseRecord(b []byte, version byte) (r datapath.Record, rest []byte, err error) {
	if len(b) < 7 || b[0]&^flagsOf(version) != 0 || b[0]&(flagDirect|flagSNAT) == flagDirect|flagSNAT || b[0]&(flagWindows|flagLoose) == flagLoose {
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
	if flags&flagWindows != 0 {
		r.Windows = p.windows(flags&flagLoose != 0)
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

func (p *parser) windows(loose bool) datapath.Windows {
	w := datapath.Windows{Known: true, Loose: loose, Scales: p.take(1)[0]}
	for i := range w.Sides {
		at := &w.Sides[i]
		for _, to := range []*uint32{&at.End, &at.Limit, &at.Most, &at.Acked} {
			*to = binary.BigEndian.Uint32(p.take(4))
		}
	}
	return w
}
