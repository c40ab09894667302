package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/layers"
)

func TestOptionsParseAsAppended(t *testing.T) {
	syn := AppendMSS(nil, 1460)
	syn = AppendSACKPermitted(syn)
	syn = AppendTimestamps(syn, 0x01020304, 0x05060708)
	syn = AppendWindowScale(AppendNOP(syn, 1), 7)
	blocks := []SACKBlock{{1, 2}, {3, 4}, {0xfffffff0, 5}}
	for name, c := range map[string]struct {
		b    []byte
		want TCPOptions
		ok   bool
	}{
		"none":                     {nil, TCPOptions{}, true},
		"syn of linux":             {syn, TCPOptions{MSS: 1460, HasWindowScale: true, WindowScale: 7, SACKPermitted: true, HasTimestamps: true, TSVal: 0x01020304, TSEcr: 0x05060708}, true},
		"aligned timestamps":       {AppendTimestamps(AppendNOP(nil, 2), 7, 8), TCPOptions{HasTimestamps: true, TSVal: 7, TSEcr: 8}, true},
		"timestamps and sack":      {AppendSACK(AppendNOP(AppendTimestamps(AppendNOP(nil, 2), 7, 8), 2), blocks...), TCPOptions{HasTimestamps: true, TSVal: 7, TSEcr: 8, SACKs: 3, SACK: [4]SACKBlock{{1, 2}, {3, 4}, {0xfffffff0, 5}}}, true},
		"scale above 14":           {AppendWindowScale(nil, 15), TCPOptions{HasWindowScale: true, WindowScale: 14}, true},
		"scale 0 is there":         {AppendWindowScale(nil, 0), TCPOptions{HasWindowScale: true}, true},
		"cookie request":           {AppendFastOpen(nil, nil), TCPOptions{HasFastOpen: true, FastOpen: []byte{}}, true},
		"cookie":                   {AppendFastOpen(nil, []byte("12345678")), TCPOptions{HasFastOpen: true, FastOpen: []byte("12345678")}, true},
		"md5":                      {AppendMD5(nil, [16]byte{1}), TCPOptions{HasMD5: true}, true},
		"ao":                       {AppendAO(nil, 1, 2, make([]byte, 12)), TCPOptions{HasAO: true}, true},
		"mss of a wrong length":    {[]byte{2, 3, 9, 1}, TCPOptions{}, true},
		"sack of a wrong length":   {[]byte{5, 6, 0, 0, 0, 0, 0, 0}, TCPOptions{}, true},
		"unknown kind":             {append([]byte{77, 4, 0, 0}, AppendMSS(nil, 9)...), TCPOptions{MSS: 9}, true},
		"after the end":            {append([]byte{0, 0, 0, 0}, AppendMSS(nil, 9)...), TCPOptions{}, true},
		"length 0":                 {[]byte{2, 4, 1, 0, 8, 0, 0, 0}, TCPOptions{MSS: 256}, false},
		"length 1":                 {[]byte{2, 4, 1, 0, 8, 1, 0, 0}, TCPOptions{MSS: 256}, false},
		"length beyond":            {[]byte{2, 4, 1, 0, 8, 10, 0, 0}, TCPOptions{MSS: 256}, false},
		"kind alone":               {[]byte{1, 1, 1, 2}, TCPOptions{}, false},
		"last of two counts (mss)": {AppendMSS(AppendMSS(nil, 1), 2), TCPOptions{MSS: 2}, true},
	} {
		s := TCP(AppendTCP(nil, &TCPHeader{Options: c.b}))
		var got TCPOptions
		eq(t, name+": ok", s.ParseOptions(&got), c.ok)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestOptionsAreReadByGopacketAsAppended(t *testing.T) {
	g := newGen(70)
	for range rounds {
		mss, shift, val, ecr := g.u16(), g.u8(), g.Uint32(), g.Uint32()
		var md5 [16]byte
		fillRandom(md5[:], g.Uint64())
		for _, opts := range [][]byte{
			AppendTimestamps(AppendSACKPermitted(AppendWindowScale(AppendMSS(nil, mss), shift)), val, ecr),
			AppendSACK(AppendNOP(nil, 2), SACKBlock{val, ecr}, SACKBlock{ecr, val}),
			AppendMD5(AppendNOP(nil, 2), md5),
			AppendAO(nil, g.u8(), g.u8(), md5[:12]),
			AppendFastOpen(AppendMSS(nil, mss), md5[:8]),
		} {
			b := AppendTCP(nil, &TCPHeader{Options: opts})
			p := &layers.TCP{}
			if err := p.DecodeFromBytes(b, noFeedback{}); err != nil {
				t.Fatal(err)
			}
			it := TCP(b).OptionIter()
			for _, o := range p.Options {
				if o.OptionType <= 1 {
					continue // padding
				}
				eq(t, "Next", it.Next(), true)
				eq(t, "Kind", it.Kind(), uint8(o.OptionType))
				eqBytes(t, "Data", it.Data(), o.OptionData)
			}
			eq(t, "Next at the end", it.Next(), false)
		}
	}
}

type noFeedback struct{}

func (noFeedback) SetTruncated() {}

func BenchmarkParseOptions(b *testing.B) {
	syn := AppendWindowScale(AppendNOP(AppendTimestamps(AppendSACKPermitted(AppendMSS(nil, 1460)), 1, 2), 1), 7)
	for name, opts := range map[string][]byte{"syn": syn, "data": AppendTimestamps(AppendNOP(nil, 2), 1, 2)} {
		s := TCP(AppendTCP(nil, &TCPHeader{Options: opts}))
		b.Run(name, func(b *testing.B) {
			var o TCPOptions
			for b.Loop() {
				s.ParseOptions(&o)
			}
		})
	}
}
