package websocket

import (
	"sync"

	"github.com/klauspost/compress/flate"
)

// Deflate holds the result of a handshake for permessage-deflate (RFC 7692 7.1), and how to compress. The
// zero value is no compression.
type Deflate struct {
	Enabled bool
	// ServerNoTakeover and ClientNoTakeover say that the server or the client begins each message
	// that it sends with an empty window.
	ServerNoTakeover, ClientNoTakeover bool
	// ServerWindowBits and ClientWindowBits are the base-2 logarithms of the windows by which server
	// and client compress, 8 to 15; 0 is 15.
	ServerWindowBits, ClientWindowBits int
	// Threshold is the least payload in bytes that is compressed; 0 is DefaultThreshold.
	Threshold int
	// Level is that of package flate, 1 (fastest) to 9 (smallest); 0 is 1. Windows below 15 bits have
	// one level only.
	Level int
	// Compact bounds the memory of a connection with context takeover: it keeps the content that the
	// window has, 32 KiB at most in each direction, and borrows what compresses for each message. That
	// costs 10 us of CPU for each message that is sent at level 1, and 70 us at level 6. Without it a
	// connection that has sent a compressed message keeps 0.8 MiB.
	Compact bool
}

// DefaultThreshold is the size below which compressing a message costs more than it saves.
const DefaultThreshold = 128

// The end of a flushed DEFLATE stream, an empty stored block, does not travel (RFC 7692 7.2.1). Behind
// it the receiver puts an empty final block, so that the decoder ends.
const (
	flushed = "\x00\x00\xff\xff"
	final   = "\x01\x00\x00\xff\xff"
)

// maxHeld is the most buffer for compressed messages that a connection keeps between messages.
const (
	maxHeld        = 64 << 10
	maxHeldCompact = 4 << 10
)

// windowSize is the largest window of DEFLATE in bytes.
const windowSize = 1 << 15

// minWindow is the least content that is kept as a window. zlib uses 9 bits where 8 were agreed on.
const minWindow = 1 << 9

// windowBytes returns the size of a window of so many bits, 0 for the largest.
func windowBytes(bits int) int {
	if bits == 0 {
		return windowSize
	}
	return max(minWindow, 1<<bits)
}

// remember appends content to a window of size bytes, of which the end counts. It moves the window only when
// slack bytes more have come.
func remember(window, p []byte, size, slack int) []byte {
	if len(p) >= size {
		return append(window[:0], p[len(p)-size:]...)
	}
	if len(window)+len(p) > size+slack {
		window = window[:copy(window, window[len(window)-min(len(window), size-len(p)):])]
	}
	return append(window, p...)
}

// deflater compresses messages. Between messages it has no compressor, but with context takeover, unless it
// is compact.
type deflater struct {
	takeover, compact bool
	threshold         int
	bits, level       int
	c                 *compressor // nil: none is needed yet
	window            []byte      // of a compact one with takeover: the last content
	open              bool        // a message is under way
}

// compressor holds a DEFLATE writer and its output. A pool for each kind keeps those that are not needed.
type compressor struct {
	enc *flate.Writer
	out sliceWriter
}

// compressors have an index by kind: windows of 8 to 14 bits, then levels 1 to 9.
var compressors [16]sync.Pool

// sliceWriter collects what is written to it.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

func newDeflater(role Role, d Deflate) *deflater {
	z := &deflater{takeover: !d.ClientNoTakeover, compact: d.Compact, threshold: d.Threshold, bits: d.ClientWindowBits, level: max(1, d.Level)}
	if role == Server {
		z.takeover, z.bits = !d.ServerNoTakeover, d.ServerWindowBits
	}
	if z.threshold == 0 {
		z.threshold = DefaultThreshold
	}
	if err := d.check(); err != nil {
		panic(err.Error())
	}
	return z
}

// kind returns the index of the compressors of z.
func (z *deflater) kind() int {
	if z.bits == 0 || z.bits == 15 {
		return 6 + z.level
	}
	return z.bits - 8
}

// borrow takes a compressor from its pool, with the window of z.
func (z *deflater) borrow() {
	z.c, _ = compressors[z.kind()].Get().(*compressor)
	if z.c == nil {
		z.c = newCompressor(z.bits, z.level)
	}
	z.c.enc.ResetDict(&z.c.out, z.window[max(0, len(z.window)-windowBytes(z.bits)):])
}

func newCompressor(bits, level int) *compressor {
	c := &compressor{}
	var err error
	if bits == 0 || bits == 15 {
		c.enc, err = flate.NewWriter(&c.out, level)
	} else {
		c.enc, err = flate.NewWriterWindow(&c.out, 1<<bits)
	}
	if err != nil {
		panic("websocket: " + err.Error()) // bits or level out of their range
	}
	return c
}

// compress returns the compressed form of the next part of a message, which is valid until release. The
// output of a part may be empty, that of the last part never is.
func (z *deflater) compress(p []byte, last bool) []byte {
	if z.c == nil {
		z.borrow()
	}
	c := z.c
	z.open = !last
	c.out.b = c.out.b[:0]
	_, _ = c.enc.Write(p) // a sliceWriter does not fail
	if last {
		_ = c.enc.Flush()
		c.out.b = c.out.b[:len(c.out.b)-len(flushed)]
	}
	if z.compact && z.takeover {
		z.window = remember(z.window, p, windowBytes(z.bits), 0)
	}
	return c.out.b
}

// release returns the compressor after a message, if the next one needs it no more.
func (z *deflater) release() {
	if z.c == nil || z.open {
		return
	}
	if cap(z.c.out.b) > maxHeld {
		z.c.out.b = nil
	}
	if !z.takeover || z.compact {
		compressors[z.kind()].Put(z.c)
		z.c = nil
	}
}
