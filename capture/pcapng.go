package capture

// Block types (pcapng 4).
const (
	blockSection    = 0x0A0D0D0A
	blockInterface  = 1
	blockPacket     = 2 // obsolete, pcapng appendix
	blockSimple     = 3
	blockStatistics = 5
	blockEnhanced   = 6
)

const (
	byteOrderMagic = 0x1A2B3C4D
	maxBlock       = 16 << 20 // bytes; the limit of Wireshark
	maxInterfaces  = 1 << 16
	blockMin       = 12 // type, length, length again
)

// pcapng decodes pcapng, a list of blocks:
//
//	type 32, length 32, body, options, length 32 again        padded to 32 bits
//
// A section header block sets the byte order and starts a new list of interfaces.
type pcapng struct {
	order order
	base  int // index in Reader.ifs of this section's interface 0
}

// block is one block between its two lengths.
type block struct {
	at   int64 // file offset
	body []byte
}

func (p *pcapng) next(r *Reader) error {
	for {
		h := r.src.peek(8)
		if len(h) == 0 {
			return r.end()
		}
		if len(h) < 8 {
			return r.short(r.src.off, "block header of 8 bytes wanted, %d there", len(h))
		}
		found, err := p.block(r, p.order.u32(h))
		if found || err != nil {
			return err
		}
	}
}

// block reads the next block, of the given type, and reports whether it was a packet.
func (p *pcapng) block(r *Reader, kind uint32) (found bool, err error) {
	switch kind {
	case blockEnhanced:
		return true, p.packet(r, (*pcapng).enhanced)
	case blockPacket:
		return true, p.packet(r, (*pcapng).obsolete)
	case blockSimple:
		return true, p.packet(r, (*pcapng).simple)
	case blockInterface:
		return false, p.packet(r, (*pcapng).iface)
	case blockStatistics:
		return false, p.packet(r, (*pcapng).statistics)
	case blockSection: // the same in both byte orders
		return false, p.section(r)
	}
	return false, p.skip(r)
}

// packet consumes the next block and decodes it.
func (p *pcapng) packet(r *Reader, decode func(*pcapng, *Reader, block) error) error {
	b, err := p.take(r)
	if err != nil {
		return err
	}
	return decode(p, r, b)
}

// length returns the length of the next block.
func (p *pcapng) length(r *Reader) (int, error) {
	n := p.order.u32(r.src.peek(8)[4:])
	if n < blockMin || n > maxBlock || n%4 != 0 {
		return 0, r.fail(r.src.off, ErrCorrupt,
			"block length wanted as a multiple of 4 from %d to %d, %d found", blockMin, maxBlock, n)
	}
	return int(n), nil
}

// take returns the next block and consumes it.
func (p *pcapng) take(r *Reader) (block, error) {
	at := r.src.off
	n, err := p.length(r)
	if err != nil {
		return block{}, err
	}
	b := r.src.peek(n)
	if len(b) < n {
		return block{}, r.short(at, "block of %d bytes wanted, %d there", n, len(b))
	}
	if err := p.closing(r, at, n, b[n-4:]); err != nil {
		return block{}, err
	}
	r.src.skip(n)
	return block{at, b[8 : n-4 : n-4]}, nil
}

// skip consumes a block without holding it: name resolution, secrets, custom and unknown ones.
func (p *pcapng) skip(r *Reader) error {
	at := r.src.off
	n, err := p.length(r)
	if err != nil {
		return err
	}
	if got := r.src.discard(n - 4); got < n-4 {
		return r.short(at, "block of %d bytes wanted, %d there", n, got)
	}
	tail := r.src.peek(4)
	if len(tail) < 4 {
		return r.short(at, "block of %d bytes wanted, %d there", n, n-4+len(tail))
	}
	if err := p.closing(r, at, n, tail); err != nil {
		return err
	}
	r.src.skip(4)
	return nil
}

// closing checks the length at the end of a block against the one at its start.
func (p *pcapng) closing(r *Reader, at int64, n int, tail []byte) error {
	if again := p.order.u32(tail); int(again) != n {
		return r.fail(at, ErrCorrupt, "block length %d wanted again at its end, %d found", n, again)
	}
	return nil
}

// section reads a section header block (pcapng 4.1).
func (p *pcapng) section(r *Reader) error {
	const sectionMin = 28
	at := r.src.off
	h := r.src.peek(sectionMin)
	if len(h) < sectionMin {
		return r.short(at, "section header of at least %d bytes wanted, %d there", sectionMin, len(h))
	}
	switch {
	case littleEndian.u32(h[8:]) == byteOrderMagic:
		p.order = littleEndian
	case bigEndian.u32(h[8:]) == byteOrderMagic:
		p.order = bigEndian
	default:
		return r.fail(at, ErrCorrupt, "byte order magic wanted in the section header, % x found", h[8:12])
	}
	if n := p.order.u32(h[4:]); n < sectionMin {
		return r.fail(at, ErrCorrupt, "section header of at least %d bytes wanted, %d found", sectionMin, n)
	}
	if major, minor := p.order.u16(h[12:]), p.order.u16(h[14:]); major != 1 {
		return r.fail(at, ErrFormat, "pcapng version %d.%d, only 1 is known", major, minor)
	}
	p.base = len(r.ifs)
	return p.skip(r)
}
