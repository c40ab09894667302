package capture

import (
	"encoding/binary"
)

// builder makes files by hand, in either byte order, and knows nothing of the writer.
type builder struct {
	o binary.AppendByteOrder
	b []byte
}

func (f *builder) u16(v ...uint16) *builder {
	for _, n := range v {
		f.b = f.o.AppendUint16(f.b, n)
	}
	return f
}

func (f *builder) u32(v ...uint32) *builder {
	for _, n := range v {
		f.b = f.o.AppendUint32(f.b, n)
	}
	return f
}

func (f *builder) raw(s string) *builder {
	f.b = append(f.b, s...)
	return f
}

// padTo4 appends zeros up to a multiple of 4 bytes.
func (f *builder) padTo4() *builder {
	for len(f.b)%4 != 0 {
		f.b = append(f.b, 0)
	}
	return f
}

// body starts a block's body in the same byte order.
func (f *builder) body() *builder { return &builder{o: f.o} }

// option appends an option with its padding.
func (f *builder) option(code uint16, v string) *builder {
	return f.u16(code, uint16(len(v))).raw(v).padTo4()
}

// block appends a block around a body.
func (f *builder) block(kind uint32, body *builder) *builder {
	n := uint32(len(body.b) + 12)
	return f.u32(kind, n).raw(string(body.b)).u32(n)
}

// num is the text of a number in the file's byte order, as an option's value.
func (f *builder) num(v uint32) string { return string(f.o.AppendUint32(nil, v)) }

func (f *builder) num64(v uint64) string { return string(f.o.AppendUint64(nil, v)) }

func (f *builder) section() *builder {
	b := f.body().u32(byteOrderMagic).u16(1, 0).u32(0xFFFFFFFF, 0xFFFFFFFF)
	return f.block(blockSection, b.option(2, "toaster").option(3, "none").u32(0))
}

// iface appends an interface with options that the caller makes.
func (f *builder) iface(lt LinkType, snap uint32, options func(*builder)) *builder {
	b := f.body().u16(uint16(lt), 0).u32(snap)
	if options != nil {
		options(b)
		b.u32(0)
	}
	return f.block(blockInterface, b)
}

// enhanced appends an enhanced packet block.
func (f *builder) enhanced(id uint32, ticks uint64, wire int, data string, options func(*builder)) *builder {
	b := f.body().u32(id, uint32(ticks>>32), uint32(ticks), uint32(len(data)), uint32(wire)).raw(data).padTo4()
	if options != nil {
		options(b)
		b.u32(0)
	}
	return f.block(blockEnhanced, b)
}

// pcapFile starts a classic pcap.
func (f *builder) pcapFile(magic uint32, minor uint16, link uint32) *builder {
	return f.u32(magic).u16(2, minor).u32(0, 0, 65535, link)
}

// sampleNG is a small pcapng with every kind of block.
func sampleNG(o binary.AppendByteOrder) []byte {
	f := &builder{o: o}
	f.section()
	f.iface(LinkTypeEthernet, 0, func(b *builder) {
		b.option(optIfName, "eth0").option(optIfDescription, "uplink").option(optIfResolution, "\x09")
		b.option(optIfFilter, "\x00tcp").option(optIfFCSLen, "\x04").option(optIfOS, "Linux").option(optIfHardware, "NIC")
	})
	f.iface(LinkTypeRaw, 6, nil)
	f.enhanced(0, 1_700_000_000_123_456_789, 100, "hello", func(b *builder) {
		b.option(optComment, "first").option(optComment, "second").option(optFlags, b.num(2)).option(optQueue, b.num(7))
		b.option(optDrops, b.num64(1<<40)).option(optPacketID, b.num64(99)).option(optVerdict, "\x02"+b.num64(2))
		b.option(0x8001, "unknown").option(2988, "custom")
	})
	f.block(4, f.body().u32(0))                  // names
	f.block(10, f.body().u32(0x544c534b, 0))     // secrets
	f.block(0xBAD, f.body().u32(42).raw("abc!")) // custom
	f.block(0x7777, f.body())                    // unknown
	f.enhanced(1, 1_600_000_000_654_321, 3, "raw", nil)
	f.block(blockPacket, f.body().u16(0, 5).u32(0, 2_000, 4, 4).raw("old!"))
	f.block(blockSimple, f.body().u32(7).raw("simple\x00\x00"))
	f.block(blockStatistics, f.body().u32(0, 0, 0).option(optStart, f.num(0)+f.num(3)).option(optReceived, f.num64(10)).option(optDropped, f.num64(2)).u32(0))
	return f.b
}
