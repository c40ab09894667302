package role

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf/asm"

	"github.com/millrace/millrace/wire"
)

// A Stream is what the senders of suite l4 send: probes from clients to services, so many of each.
// Packet number n is of flow mix(n) % flows; flows differ in the source, 64 ports to an address, and
// only every second address is used, so that a list of prefixes can have the others. Services differ
// in the port. The same in peers/packet.c.
type Stream struct {
	MAC             string // of the gateway; empty is the probe to nobody
	From, To        string // the first source and service, address:port
	Flows, Services uint
}

const (
	portBits = 6 // source ports of one address, as bits
	mixA     = 0x9E3779B97F4A7C15
	mixB     = 0xD6E8FEB86659FD93
)

func (s *Stream) flags(fs *flag.FlagSet) {
	fs.StringVar(&s.MAC, "mac", "", "link address that probes are sent to")
	fs.StringVar(&s.From, "from", "198.18.0.1:9", "first source of probes")
	fs.StringVar(&s.To, "to", "198.18.0.2:9", "first destination of probes")
	fs.UintVar(&s.Flows, "flows", 1, "sources of probes")
	fs.UintVar(&s.Services, "services", 1, "destination ports of probes")
}

// Args are the flags that flags reads.
func (s Stream) Args() []string {
	return []string{
		"-mac", s.MAC, "-from", s.From, "-to", s.To,
		"-flows", fmt.Sprint(s.Flows), "-services", fmt.Sprint(s.Services),
	}
}

// Mix spreads packet numbers over flows (high half) and services (low half) without an order that a
// cache could learn.
func Mix(n uint64) uint64 {
	n *= mixA
	n ^= n >> 32
	return n * mixB
}

// Probe returns the first packet: of flow 0, to the first service.
func (s Stream) Probe(size int) ([]byte, error) {
	p, err := probe(size)
	if err != nil || s.MAC == "" {
		return p, err
	}
	mac, err := net.ParseMAC(s.MAC)
	if err != nil {
		return nil, err
	}
	copy(p, mac)
	from, err := netip.ParseAddrPort(s.From)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(s.To)
	if err != nil {
		return nil, err
	}
	if !from.Addr().Is4() || !to.Addr().Is4() || s.Flows == 0 || s.Services == 0 {
		return nil, errors.New("probes go from IPv4 to IPv4, over one flow and service or more")
	}
	a, b := from.Addr().As4(), to.Addr().As4()
	copy(p[26:], a[:])
	copy(p[30:], b[:])
	binary.BigEndian.PutUint16(p[34:], from.Port())
	binary.BigEndian.PutUint16(p[36:], to.Port())
	binary.BigEndian.PutUint16(p[24:], 0)
	binary.BigEndian.PutUint16(p[24:], wire.Fold(wire.Sum(p[14:34], 0)))
	return p, nil
}

// Vary makes p, a copy of the first packet, packet number n, without the number itself.
func (s Stream) Vary(p, first []byte, n uint64) {
	x := Mix(n)
	s.Set(p, first, uint32(x>>32)%uint32(s.Flows), uint32(x)%uint32(s.Services))
}

// Set makes p, a copy of the first packet, one of a flow to a service.
func (s Stream) Set(p, first []byte, flow, service uint32) {
	binary.BigEndian.PutUint32(p[26:], binary.BigEndian.Uint32(first[26:])+flow>>portBits<<1)
	binary.BigEndian.PutUint16(p[34:], binary.BigEndian.Uint16(first[34:])+uint16(flow&(1<<portBits-1)))
	binary.BigEndian.PutUint16(p[36:], binary.BigEndian.Uint16(first[36:])+uint16(service))
	p[24], p[25] = 0, 0
	binary.BigEndian.PutUint16(p[24:], wire.Fold(wire.Sum(p[14:34], 0)))
}

// headers is program, or nothing for the probe to nobody.
func (s Stream) headers(first []byte) asm.Instructions {
	if s.MAC == "" {
		return nil
	}
	return s.program(first)
}

// program is vary in BPF: R2 is the packet, R6 its number. It writes all headers, since a kernel
// that forwards the frame rewrites it in place before the source gets it back. R2, R5 and R6 stay.
func (s Stream) program(first []byte) asm.Instructions {
	var p asm.Instructions
	for at := int16(0); at < seqAt-2; at += 8 {
		p = append(p, asm.LoadImm(asm.R4, int64(binary.NativeEndian.Uint64(first[at:])), asm.DWord),
			asm.StoreMem(asm.R2, at, asm.R4, asm.DWord))
	}
	p = append(p, asm.StoreImm(asm.R2, seqAt-2, int64(binary.NativeEndian.Uint16(first[seqAt-2:])), asm.Half))
	if s.Flows == 1 && s.Services == 1 {
		return p
	}
	p = append(p, mixProgram()...)
	p = append(p, s.sourceAddr(first)...)
	return append(p,
		asm.And.Imm(asm.R8, 1<<portBits-1),
		asm.Add.Imm(asm.R8, int32(binary.BigEndian.Uint16(first[34:]))),
		asm.HostTo(asm.BE, asm.R8, asm.Half),
		asm.StoreMem(asm.R2, 34, asm.R8, asm.Half),
		asm.Mod.Imm32(asm.R7, int32(s.Services)), // of the low half
		asm.Add.Imm(asm.R7, int32(binary.BigEndian.Uint16(first[36:]))),
		asm.HostTo(asm.BE, asm.R7, asm.Half),
		asm.StoreMem(asm.R2, 36, asm.R7, asm.Half),
	)
}

// mixProgram leaves mix(R6) in R7.
func mixProgram() asm.Instructions {
	a, b := uint64(mixA), uint64(mixB)
	return asm.Instructions{
		asm.Mov.Reg(asm.R7, asm.R6),
		asm.LoadImm(asm.R8, int64(a), asm.DWord),
		asm.Mul.Reg(asm.R7, asm.R8),
		asm.Mov.Reg(asm.R8, asm.R7),
		asm.RSh.Imm(asm.R8, 32),
		asm.Xor.Reg(asm.R7, asm.R8),
		asm.LoadImm(asm.R8, int64(b), asm.DWord),
		asm.Mul.Reg(asm.R7, asm.R8),
	}
}

// sourceAddr leaves the flow of R7 in R8 and writes its address and the header checksum.
func (s Stream) sourceAddr(first []byte) asm.Instructions {
	rest := append([]byte(nil), first[14:26]...) // the header without source and checksum
	rest = append(rest, first[30:34]...)
	rest[10], rest[11] = 0, 0
	sum := int32(^wire.Fold(wire.Sum(rest, 0)))
	p := asm.Instructions{
		asm.Mov.Reg(asm.R8, asm.R7),
		asm.RSh.Imm(asm.R8, 32),
		asm.Mod.Imm32(asm.R8, int32(s.Flows)),
		asm.Mov.Reg(asm.R9, asm.R8),
		asm.RSh.Imm(asm.R9, portBits),
		asm.LSh.Imm(asm.R9, 1),
		asm.LoadImm(asm.R4, int64(binary.BigEndian.Uint32(first[26:])), asm.DWord),
		asm.Add.Reg(asm.R9, asm.R4),
		asm.Mov.Reg(asm.R4, asm.R9),
		asm.And.Imm(asm.R4, 0xffff),
		asm.Mov.Reg(asm.R0, asm.R9),
		asm.RSh.Imm(asm.R0, 16),
		asm.Add.Reg(asm.R4, asm.R0),
		asm.Add.Imm(asm.R4, sum),
	}
	for range 2 { // fold the carries
		p = append(p,
			asm.Mov.Reg(asm.R0, asm.R4),
			asm.RSh.Imm(asm.R0, 16),
			asm.And.Imm(asm.R4, 0xffff),
			asm.Add.Reg(asm.R4, asm.R0),
		)
	}
	return append(p,
		asm.Xor.Imm(asm.R4, 0xffff),
		asm.HostTo(asm.BE, asm.R4, asm.Half),
		asm.StoreMem(asm.R2, 24, asm.R4, asm.Half),
		asm.HostTo(asm.BE, asm.R9, asm.Word),
		asm.StoreMem(asm.R2, 26, asm.R9, asm.Word),
	)
}
