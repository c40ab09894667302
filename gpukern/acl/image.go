package acl

import (
	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/gpukern/tuple"
)

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
	if r.SrcPorts.Set || r.DstPorts.Set {
		f.asks = 1
	}
	if !anyPrefix(r.Src) {
		f.srcHi, f.srcLo = tuple.Words(r.Src.Addr())
		f.srcBits = uint8(r.Src.Bits())
	}
	if !anyPrefix(r.Dst) {
		f.dstHi, f.dstLo = tuple.Words(r.Dst.Addr())
		f.dstBits = uint8(r.Dst.Bits())
	}
	return f
}

// flat returns p in one word: the first port, and how many follow << 16.
func (p Ports) flat() uint32 {
	if !p.Set {
		return 0xffff << 16
	}
	return uint32(p.Lo) | uint32(p.Hi-p.Lo)<<16
}

// Images returns the rules of IPv4 and of IPv6 for kernels: a struct gk_acl each. The memory is a's but
// for copies of what only kernels read; a nil list matches nothing.
func (a *List) Images() (v4, v6 image.Image) {
	if a == nil {
		a = new(List)
	}
	return a.v4.image(), a.v6.image()
}

func (f *family) image() image.Image {
	f.kernels.Do(func() {
		if f.tree != nil {
			f.shared(f.rules, true)
		}
	})
	var m image.Image
	f.vectors.image(&m)
	d := f.decision
	if d == nil {
		d = new(decision)
	}
	d.trie.Arrays(&m)
	m.Pointer(image.Bytes(d.refs))
	m.Pointer(image.Bytes(d.forks))
	m.Pointer(image.Bytes(d.items))
	m.Pointer(image.Bytes(d.flat))
	for _, ref := range d.top {
		m.U32(ref)
	}
	m.U32(bitOf(d.v6))
	return m
}

func (c *classifier) image(m *image.Image) {
	c.src.image(m)
	c.dst.image(m)
	c.sport.image(m)
	c.dport.image(m)
	m.Pointer(image.Bytes(c.proto[:]))
	m.Pointer(image.Bytes(c.vec))
	m.Pointer(image.Bytes(c.place))
	flat := make([]flatRule, len(c.rules))
	for i := range flat {
		flat[i] = c.rules[i].flat()
	}
	m.Pointer(image.Bytes(flat))
	m.U32(uint32(len(c.rules)))
	m.U32(uint32(c.words))
	m.U32(uint32(c.heads))
	m.U32(bitOf(c.coarse))
}

func bitOf(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}

func (f *field) image(m *image.Image) {
	f.trie.Arrays(m)
	m.U32(uint32(f.trie.Wide()))
	m.U32(f.all)
}

func (f *portField) image(m *image.Image) {
	m.Pointer(image.Bytes(f.table))
	m.U32(f.all)
	m.U32(0)
}
