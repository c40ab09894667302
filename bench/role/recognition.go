package role

import (
	"errors"
	"net/netip"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/wire"
)

// CollectFlows writes the packets of captures to one file, copies times, as frames of Ethernet. The unicast
// addresses of each copy differ, so that its flows are new ones. It returns how many packets these are.
func CollectFlows(path string, files []string, copies int) (packets int, err error) {
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	now := int64(1e18)
	for c := range copies {
		for _, name := range files {
			n, last, err := copyFlows(w, name, byte(c), now)
			if err != nil {
				return packets, err
			}
			packets, now = packets+n, last+1e9
		}
	}
	return packets, nil
}

// copyFlows copies a capture, whose packets are then from now on, and returns the time of the last.
func copyFlows(w *capture.Writer, name string, change byte, now int64) (packets int, last int64, err error) {
	in, err := capture.Open(name)
	if err != nil {
		return 0, now, err
	}
	defer in.Close()
	before := int64(-1)
	for {
		rec, err := in.Next()
		if err != nil { // SampleCaptures has read it to its end
			return packets, now, nil
		}
		frame, err := capture.ToEthernet(rec.LinkType, rec.Data, nil)
		if err != nil {
			continue
		}
		if before >= 0 {
			now += min(max(rec.Time-before, 0), 60e9)
		}
		before = rec.Time
		changeAddresses(frame, change)
		if err := w.Write(&capture.Record{Data: frame, Len: len(frame), Time: now}); err != nil {
			return packets, now, err
		}
		packets++
	}
}

// changeAddresses changes a byte of the unicast addresses of an IP packet without tags, and the checksums with it: what
// was wrong stays wrong.
func changeAddresses(frame []byte, change byte) {
	if len(frame) < wire.EthernetLen {
		return
	}
	p := frame[wire.EthernetLen:]
	switch wire.Ethernet(frame).EtherType() {
	case wire.EtherTypeIPv4:
		if h := wire.IPv4(p); h.ValidHeader() && h.HeaderLen() <= len(p) {
			first := h.FragmentOffset() == 0
			for _, at := range []int{12, 16} {
				if !netip.AddrFrom4([4]byte(p[at:])).IsMulticast() && p[at] != 255 {
					h.SetChecksum(changeWord(p[at:at+2], change, h.Checksum(), first, p[h.HeaderLen():], h.Proto()))
				}
			}
		}
	case wire.EtherTypeIPv6:
		if h := wire.IPv6(p); len(p) >= wire.IPv6Len {
			for _, at := range []int{8, 24} {
				if p[at] != 0xff {
					changeWord(p[at+6:at+8], change, 0, true, p[wire.IPv6Len:], h.NextHeader())
				}
			}
		}
	}
}

// changeWord changes the second byte of a word of an address, the transport's checksum if the header of that is there,
// and returns the changed header checksum.
func changeWord(word []byte, change byte, header uint16, first bool, transport []byte, proto uint8) uint16 {
	before := uint16(word[0])<<8 | uint16(word[1])
	word[1] ^= change
	after := uint16(word[0])<<8 | uint16(word[1])
	switch {
	case !first:
	case proto == wire.ProtoTCP && len(transport) >= wire.TCPLen:
		t := wire.TCP(transport)
		t.SetChecksum(wire.Update16(t.Checksum(), before, after))
	case proto == wire.ProtoUDP && len(transport) >= wire.UDPLen:
		if u := wire.UDP(transport); u.Checksum() != 0 {
			u.SetChecksum(wire.Update16(u.Checksum(), before, after))
		}
	}
	return wire.Update16(header, before, after)
}
