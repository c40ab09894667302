package capture

// Option codes (pcapng 3.5, 4.2, 4.3, 4.6).
const (
	optEnd     = 0
	optComment = 1

	optHardware    = 2 // of a section header
	optOS          = 3
	optApplication = 4

	optIfName        = 2
	optIfDescription = 3
	optIfResolution  = 9
	optIfFilter      = 11
	optIfOS          = 12
	optIfFCSLen      = 13
	optIfOffset      = 14
	optIfHardware    = 15

	optFlags    = 2 // of packet blocks
	optDrops    = 4
	optPacketID = 5
	optQueue    = 6
	optVerdict  = 7

	optStart     = 2 // of interface statistics
	optEndTime   = 3
	optReceived  = 4
	optDropped   = 5
	optAccepted  = 6
	optOSDropped = 7
	optDelivered = 8
)

func padded(n int) int { return (n + 3) &^ 3 }

// options calls set for each option in b; set returns false for a value of the wrong length.
func (p *pcapng) options(r *Reader, at int64, b []byte, set func(code uint16, v []byte) bool) error {
	for len(b) >= 4 {
		code, n := p.order.u16(b), int(p.order.u16(b[2:]))
		if code == optEnd {
			return nil
		}
		if padded(n) > len(b)-4 {
			return r.fail(at, ErrCorrupt, "option %d of %d bytes, the block has %d left", code, n, len(b)-4)
		}
		if !set(code, b[4:4+n:4+n]) {
			return r.fail(at, ErrCorrupt, "option %d has a wrong length, %d", code, n)
		}
		b = b[4+padded(n):]
	}
	if len(b) > 0 {
		return r.fail(at, ErrCorrupt, "option header of 4 bytes wanted, %d left in the block", len(b))
	}
	return nil
}

// iface reads an interface description block (pcapng 4.2).
func (p *pcapng) iface(r *Reader, b block) error {
	if len(b.body) < 8 {
		return r.fail(b.at, ErrCorrupt, "interface description of at least 8 bytes wanted, %d found", len(b.body))
	}
	if len(r.ifs) == maxInterfaces {
		return r.fail(b.at, ErrCorrupt, "at most %d interfaces wanted", maxInterfaces)
	}
	in := Interface{
		LinkType: LinkType(p.order.u16(b.body)),
		SnapLen:  int(min(p.order.u32(b.body[4:]), 1<<31-1)),
		ticks:    micros,
	}
	err := p.options(r, b.at, b.body[8:], func(code uint16, v []byte) bool {
		return p.ifOption(&in, code, v)
	})
	if err != nil {
		return err
	}
	r.ifs = append(r.ifs, in)
	return nil
}

func (p *pcapng) ifOption(in *Interface, code uint16, v []byte) bool {
	switch code {
	case optIfName:
		in.Name = string(v)
	case optIfDescription:
		in.Description = string(v)
	case optIfOS:
		in.OS = string(v)
	case optIfHardware:
		in.Hardware = string(v)
	case optIfFilter: // first octet 0: a libpcap expression follows; others are byte code
		if len(v) > 0 && v[0] == 0 {
			in.Filter = string(v[1:])
		}
	case optIfResolution:
		if len(v) != 1 {
			return false
		}
		in.ticks.resolve(v[0])
	case optIfFCSLen:
		if len(v) != 1 {
			return false
		}
		in.FCSLen = int(v[0])
	case optIfOffset:
		if len(v) != 8 {
			return false
		}
		in.ticks.offset = int64(p.order.u64(v))
	}
	return true
}

// lookup returns interface id of this section.
func (p *pcapng) lookup(r *Reader, at int64, id uint32) (*Interface, error) {
	have := len(r.ifs) - p.base
	if int64(id) >= int64(have) {
		return nil, r.fail(at, ErrCorrupt, "interface %d is named, the section has described %d", id, have)
	}
	return &r.ifs[p.base+int(id)], nil
}

// enhanced reads an enhanced packet block (pcapng 4.3):
//
//	interface 32, time high 32, time low 32, captured 32, length 32, data, options
func (p *pcapng) enhanced(r *Reader, b block) error {
	if len(b.body) < 20 {
		return r.fail(b.at, ErrCorrupt, "packet block of at least 20 bytes wanted, %d found", len(b.body))
	}
	r.rec.Meta = Meta{}
	return p.stamped(r, b, p.order.u32(b.body))
}

// obsolete reads a packet block of the first drafts, which packs a drop count beside the interface.
func (p *pcapng) obsolete(r *Reader, b block) error {
	const unknown = 0xFFFF
	if len(b.body) < 20 {
		return r.fail(b.at, ErrCorrupt, "packet block of at least 20 bytes wanted, %d found", len(b.body))
	}
	r.rec.Meta = Meta{}
	if drops := p.order.u16(b.body[2:]); drops != unknown {
		r.rec.Meta.Has, r.rec.Meta.Drops = HasDrops, uint64(drops)
	}
	return p.stamped(r, b, uint32(p.order.u16(b.body)))
}

// stamped reads the fields that enhanced and obsolete packet blocks share.
func (p *pcapng) stamped(r *Reader, b block, id uint32) error {
	in, err := p.lookup(r, b.at, id)
	if err != nil {
		return err
	}
	o, rec := p.order, &r.rec
	rec.Time = in.ticks.ns(uint64(o.u32(b.body[4:]))<<32 | uint64(o.u32(b.body[8:])))
	rec.Len = int(o.u32(b.body[16:]))
	rec.Interface, rec.LinkType = p.base+int(id), in.LinkType
	n := o.u32(b.body[12:])
	rest, err := p.data(r, b, b.body[20:], n)
	if err != nil || len(rest) == 0 {
		return err
	}
	return p.options(r, b.at, rest, func(code uint16, v []byte) bool {
		return p.packetOption(&rec.Meta, code, v)
	})
}

// data takes n bytes of packet from the front of body and returns what follows the padding.
func (p *pcapng) data(r *Reader, b block, body []byte, n uint32) ([]byte, error) {
	if n > MaxRecord {
		return nil, r.fail(b.at, ErrCorrupt, "captured length of at most %d wanted, %d found", MaxRecord, n)
	}
	if int(n) > len(body) {
		return nil, r.fail(b.at, ErrCorrupt, "%d bytes of packet wanted, the block has %d", n, len(body))
	}
	r.rec.Data = body[:n:n]
	return body[min(padded(int(n)), len(body)):], nil
}

func (p *pcapng) packetOption(m *Meta, code uint16, v []byte) bool {
	switch code {
	case optComment:
		if m.Has&HasComment == 0 {
			m.Has, m.Comment = m.Has|HasComment, v
		}
	case optVerdict:
		if m.Has&HasVerdict == 0 {
			m.Has, m.Verdict = m.Has|HasVerdict, v
		}
	case optFlags:
		if len(v) != 4 {
			return false
		}
		m.Has, m.Flags = m.Has|HasFlags, PacketFlags(p.order.u32(v))
	case optQueue:
		if len(v) != 4 {
			return false
		}
		m.Has, m.Queue = m.Has|HasQueue, p.order.u32(v)
	case optDrops:
		if len(v) != 8 {
			return false
		}
		m.Has, m.Drops = m.Has|HasDrops, p.order.u64(v)
	case optPacketID:
		if len(v) != 8 {
			return false
		}
		m.Has, m.PacketID = m.Has|HasPacketID, p.order.u64(v)
	}
	return true
}

// simple reads a simple packet block (pcapng 4.4): no time, no options, always interface 0, and a
// captured length that follows from the interface's snap length.
func (p *pcapng) simple(r *Reader, b block) error {
	if len(b.body) < 4 {
		return r.fail(b.at, ErrCorrupt, "simple packet block of at least 4 bytes wanted, %d found", len(b.body))
	}
	in, err := p.lookup(r, b.at, 0)
	if err != nil {
		return err
	}
	n := p.order.u32(b.body)
	r.rec = Record{Interface: p.base, LinkType: in.LinkType, Len: int(n)}
	if in.SnapLen > 0 {
		n = min(n, uint32(in.SnapLen))
	}
	_, err = p.data(r, b, b.body[4:], n)
	return err
}

// statistics reads an interface statistics block (pcapng 4.6). The last one of an interface counts.
func (p *pcapng) statistics(r *Reader, b block) error {
	if len(b.body) < 12 {
		return r.fail(b.at, ErrCorrupt, "interface statistics of at least 12 bytes wanted, %d found", len(b.body))
	}
	in, err := p.lookup(r, b.at, p.order.u32(b.body))
	if err != nil {
		return err
	}
	c := &Counters{}
	err = p.options(r, b.at, b.body[12:], func(code uint16, v []byte) bool {
		return p.counter(in, c, code, v)
	})
	if err == nil {
		in.Counters = c
	}
	return err
}

func (p *pcapng) counter(in *Interface, c *Counters, code uint16, v []byte) bool {
	if code < optStart || code > optDelivered {
		return true
	}
	if len(v) != 8 {
		return false
	}
	n := p.order.u64(v)
	switch code {
	case optStart:
		c.Start = p.stamp(in, v)
	case optEndTime:
		c.End = p.stamp(in, v)
	case optReceived:
		c.Received = n
	case optDropped:
		c.Dropped = n
	case optAccepted:
		c.Accepted = n
	case optOSDropped:
		c.OSDropped = n
	case optDelivered:
		c.Delivered = n
	}
	return true
}

// stamp reads a time: its high 32 bits come first, in either byte order.
func (p *pcapng) stamp(in *Interface, v []byte) int64 {
	return in.ticks.ns(uint64(p.order.u32(v))<<32 | uint64(p.order.u32(v[4:])))
}
