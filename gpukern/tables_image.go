package gpukern

// flatRule is a rule of one family as kernels read it: struct gk_rule in gpukern/cuda/acl.cuh.
type flatRule struct {
	srcHi, srcLo, dstHi, dstLo uint64
	sports, dports             uint32 // the first port, and how many follow << 16
	srcBits, dstBits           uint8
	proto                      uint8
	asks                       uint8 // 1 where packets without ports do not match
	_                          uint32
}

func (r *Rule) flat() flatRule {
	f := flatRule{proto: r.Proto, sports: r.SrcPorts.flat(), dports: r.DstPorts.flat()}
	if r.SrcPorts.set || r.DstPorts.set {
		f.asks = 1
	}
	if !anyPrefix(r.Src) {
		f.srcHi, f.srcLo = words(r.Src.Addr())
		f.srcBits = uint8(r.Src.Bits())
	}
	if !anyPrefix(r.Dst) {
		f.dstHi, f.dstLo = words(r.Dst.Addr())
		f.dstBits = uint8(r.Dst.Bits())
	}
	return f
}

// flat returns p in one word: the first port, and how many follow << 16.
func (p Ports) flat() uint32 {
	if !p.set {
		return 0xffff << 16
	}
	return uint32(p.lo) | uint32(p.hi-p.lo)<<16
}

// Images returns the routes of IPv4 and of IPv6 for kernels: a struct gk_lpm each. The memory is t's;
// a nil table finds nothing.
func (t *LPM) Images() (v4, v6 Image) {
	if t == nil {
		t = new(LPM)
	}
	return lpmImage(&t.v4), lpmImage(&t.v6)
}

func lpmImage(t *trie[uint16]) Image {
	var m Image
	m.pointer(bytesOf(t.nodes))
	m.pointer(bytesOf(t.leaves))
	m.u32(uint32(t.wide))
	m.u32(0)
	return m
}

// Images returns the rules of IPv4 and of IPv6 for kernels: a struct gk_acl each. The memory is a's but
// for copies of what only kernels read; a nil list matches nothing.
func (a *ACL) Images() (v4, v6 Image) {
	if a == nil {
		a = new(ACL)
	}
	return a.v4.image(), a.v6.image()
}

func (f *family) image() Image {
	var m Image
	f.vectors.image(&m)
	d := f.decision
	if d == nil {
		d = new(decision)
	}
	m.pointer(bytesOf(d.nodes))
	m.pointer(bytesOf(d.leaves))
	m.pointer(bytesOf(d.refs))
	m.pointer(bytesOf(d.forks))
	m.pointer(bytesOf(d.items))
	m.pointer(bytesOf(d.flat))
	for _, ref := range d.top {
		m.u32(ref)
	}
	m.u32(bitOf(d.v6))
	return m
}

func (c *classifier) image(m *Image) {
	c.src.image(m)
	c.dst.image(m)
	c.sport.image(m)
	c.dport.image(m)
	m.pointer(bytesOf(c.proto[:]))
	m.pointer(bytesOf(c.vec))
	m.pointer(bytesOf(c.place))
	flat := make([]flatRule, len(c.rules))
	for i := range flat {
		flat[i] = c.rules[i].flat()
	}
	m.pointer(bytesOf(flat))
	m.u32(uint32(len(c.rules)))
	m.u32(uint32(c.words))
	m.u32(uint32(c.heads))
	m.u32(bitOf(c.coarse))
}

func bitOf(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}

func (f *field) image(m *Image) {
	m.pointer(bytesOf(f.trie.nodes))
	m.pointer(bytesOf(f.trie.leaves))
	m.u32(uint32(f.trie.wide))
	m.u32(f.all)
}

func (f *portField) image(m *Image) {
	m.pointer(bytesOf(f.table))
	m.u32(f.all)
	m.u32(0)
}
