package capture

import "encoding/binary"

// snoop decodes the format of Solaris' snoop (RFC 1761), whose numbers are big-endian:
//
//	file:   "snoop", three zeros, version 32, datalink type 32                               16 bytes
//	record: length 32, captured 32, record length 32, drops 32, seconds 32, microseconds 32  24 bytes, data, padding
type snoop struct {
	drops uint32 // of the record before: a record has the sum since the start
}

const (
	magicSnoop   = 0x6F6F6E73 // "snoo", read little-endian
	snoopHeader  = 16
	snoopRecord  = 24
	snoopVersion = 2
)

// snoopLinks are the datalink types of RFC 1761 and of IANA's list whose packets have a link type of pcap.
var snoopLinks = map[uint32]LinkType{
	0: LinkTypeEthernet, // IEEE 802.3
	2: LinkTypeTokenRing,
	4: LinkTypeEthernet,
	8: LinkTypeFDDI,
}

// header reads the file's header.
func (s *snoop) header(r *Reader) error {
	h := r.src.peek(snoopHeader)
	if len(h) < snoopHeader {
		return r.short(0, "header of %d bytes wanted, %d there", snoopHeader, len(h))
	}
	if string(h[:8]) != "snoop\x00\x00\x00" {
		return r.fail(0, ErrFormat, "magic number % x is neither pcap, pcapng nor snoop", h[:8])
	}
	if v := binary.BigEndian.Uint32(h[8:]); v != snoopVersion {
		return r.fail(0, ErrFormat, "snoop version %d, only %d is known", v, snoopVersion)
	}
	n := binary.BigEndian.Uint32(h[12:])
	link, ok := snoopLinks[n]
	if !ok {
		return r.fail(0, ErrLinkType, "snoop datalink type %d", n)
	}
	r.ifs = append(r.ifs, Interface{LinkType: link})
	r.rec.LinkType = link
	r.src.skip(snoopHeader)
	return nil
}

func (s *snoop) next(r *Reader) error {
	at := r.src.off
	h := r.src.peek(snoopRecord)
	if len(h) < snoopRecord {
		if len(h) == 0 {
			return r.end()
		}
		return r.short(at, "record header of %d bytes wanted, %d there", snoopRecord, len(h))
	}
	o, rec := bigEndian, &r.rec
	n, whole, drops := o.u32(h[4:]), o.u32(h[8:]), o.u32(h[12:])
	switch {
	case n > MaxRecord:
		return r.fail(at, ErrCorrupt, "captured length of at most %d wanted, %d found", MaxRecord, n)
	case whole < snoopRecord+n || whole > maxBlock:
		return r.fail(at, ErrCorrupt, "record length from %d to %d wanted, %d found", snoopRecord+n, maxBlock, whole)
	}
	rec.Len = int(o.u32(h))
	rec.Time = int64(o.u32(h[16:]))*second + int64(o.u32(h[20:]))*1000
	rec.Meta = Meta{}
	if drops > s.drops {
		rec.Meta = Meta{Has: HasDrops, Drops: uint64(drops - s.drops)}
	}
	s.drops = drops
	b := r.src.peek(snoopRecord + int(n))
	if len(b) < snoopRecord+int(n) {
		return r.short(at, "%d bytes of packet wanted, %d there", n, len(b)-snoopRecord)
	}
	b = r.src.peek(int(whole)) // the padding of the last record may be missing
	rec.Data = b[snoopRecord : snoopRecord+n : snoopRecord+n]
	r.src.skip(len(b))
	return nil
}
