package wscases

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
)

// Opcodes (RFC 6455 5.2).
const (
	cont    = 0x0
	text    = 0x1
	bin     = 0x2
	opClose = 0x8
	ping    = 0x9
	pong    = 0xA
)

// form is how a frame's length is encoded.
type form uint8

// Values of form.
const (
	shortest form = iota
	by16
	by64
	negative // 64 bits with the top bit set
)

// frame is a frame to send or one that was received.
type frame struct {
	op      byte
	more    bool // not the last of its message
	rsv     byte // the three reserved bits, 4 for RSV1
	payload string
	length  form
	wrong   bool // masked by a server, not masked by a client
}

// key is the masking key of every frame that is masked.
var key = [4]byte{0x12, 0x83, 0x00, 0xF4}

// encode appends the frame as a peer in the role sends it.
func (f frame) encode(b []byte, client bool) []byte {
	first := f.op | f.rsv<<4
	if !f.more {
		first |= 0x80
	}
	var mask byte
	if client != f.wrong {
		mask = 0x80
	}
	n := len(f.payload)
	switch {
	case f.length == by64 || f.length == negative || n > 0xFFFF:
		b = binary.BigEndian.AppendUint64(append(b, first, mask|127), uint64(n))
		if f.length == negative {
			b[len(b)-8] |= 0x80
		}
	case f.length == by16 || n > 125:
		b = binary.BigEndian.AppendUint16(append(b, first, mask|126), uint16(n))
	default:
		b = append(b, first, mask|byte(n))
	}
	if mask == 0 {
		return append(b, f.payload...)
	}
	b = append(b, key[:]...)
	for i := range n {
		b = append(b, f.payload[i]^key[i%4])
	}
	return b
}

// readFrame reads a frame of the implementation under test and checks that a server does not mask and a
// client does, and that the length is in its shortest form.
func readFrame(r io.Reader, fromClient bool) (f frame, err error) {
	var h [2]byte
	if _, err = io.ReadFull(r, h[:]); err != nil {
		return f, err
	}
	f = frame{op: h[0] & 15, rsv: h[0] >> 4 & 7, more: h[0]&0x80 == 0}
	n := uint64(h[1] & 127)
	if more := map[uint64]int{126: 2, 127: 8}[n]; more > 0 {
		least := map[int]uint64{2: 126, 8: 1 << 16}[more]
		long := make([]byte, 8)
		if _, err = io.ReadFull(r, long[8-more:]); err != nil {
			return f, err
		}
		if n = binary.BigEndian.Uint64(long); n < least || n > 1<<30 {
			return f, fmt.Errorf("length %d in %d bytes", n, more)
		}
	}
	if masked := h[1]&0x80 != 0; masked != fromClient {
		return f, fmt.Errorf("masked is %v", masked)
	}
	var k [4]byte
	if fromClient {
		if _, err = io.ReadFull(r, k[:]); err != nil {
			return f, err
		}
	}
	p := make([]byte, n)
	if _, err = io.ReadFull(r, p); err != nil {
		return f, err
	}
	for i := range p {
		p[i] ^= k[i%4]
	}
	f.payload = string(p)
	return f, nil
}

// deflater compresses what a case sends.
type deflater struct {
	takeover bool
	out      bytes.Buffer
	enc      *flate.Writer
}

// newDeflater returns a compressor. Windows below 15 bits are kept by having no references at all.
func newDeflater(takeover bool, bits int) *deflater {
	d := &deflater{takeover: takeover}
	level := 6
	if bits < 15 {
		level = flate.HuffmanOnly
	}
	d.enc, _ = flate.NewWriter(&d.out, level)
	return d
}

func (d *deflater) compress(p string) string {
	d.out.Reset()
	if !d.takeover {
		d.enc.Reset(&d.out)
	}
	_, _ = io.WriteString(d.enc, p)
	_ = d.enc.Flush()
	return d.out.String()[:d.out.Len()-4]
}
