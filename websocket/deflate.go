package websocket

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/flate"
)

// Deflate is what a handshake agreed on for permessage-deflate (RFC 7692 7.1), and how to compress. The
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
}

// DefaultThreshold is the size below which compressing a message costs more than it saves.
const DefaultThreshold = 128

// receiveTakeover reports whether the peer's messages refer to those before them.
func (d Deflate) receiveTakeover(role Role) bool {
	if role == Client {
		return !d.ServerNoTakeover
	}
	return !d.ClientNoTakeover
}

// The end of a flushed DEFLATE stream, an empty stored block, does not travel (RFC 7692 7.2.1). Behind
// it the receiver puts an empty final block, so that the decoder ends.
const (
	flushed = "\x00\x00\xff\xff"
	final   = "\x01\x00\x00\xff\xff"
)

// windowSize is the largest window of DEFLATE in bytes.
const windowSize = 1 << 15

// maxFinalBlocks bounds the final blocks inside of a message (RFC 7692 7.2.3.5): the decoder begins anew
// behind each, which costs more than the few bytes that they have.
const maxFinalBlocks = 16

// maxHeld is the most buffer for compressed messages that a connection keeps between messages.
const maxHeld = 64 << 10

// inflater decompresses messages. It holds the compressed form until a message is complete and returns
// its content in parts, so that memory is bounded whatever the ratio.
type inflater struct {
	in       []byte // compressed form of the message
	src      bytes.Reader
	dec      io.ReadCloser // also a flate.Resetter
	takeover bool
	window   []byte // the last content, at most 2*windowSize, the end of which counts
	wireSize int
	outSize  int64
	finals   int
	out      [4096]byte
}

func newInflater(takeover bool) *inflater { return &inflater{takeover: takeover} }

// begin starts the decompression of the message that z.in has.
func (z *inflater) begin() {
	z.wireSize = len(z.in)
	z.in = append(append(z.in, flushed...), final...)
	z.src.Reset(z.in)
	z.outSize, z.finals = 0, 0
	if !z.takeover {
		z.window = z.window[:0]
	}
	z.restart()
}

// restart begins a DEFLATE stream at the current input with the current window.
func (z *inflater) restart() {
	if z.dec == nil {
		z.dec = flate.NewReaderDict(&z.src, z.window)
		return
	}
	// Reset of this type does not fail.
	_ = z.dec.(flate.Resetter).Reset(&z.src, z.history())
}

// history returns the content that the next bytes may refer to.
func (z *inflater) history() []byte { return z.window[max(0, len(z.window)-windowSize):] }

// next returns the next part of the message; last says that it is complete. The part is valid until the
// next call.
func (z *inflater) next(limits Limits) (part []byte, last bool, err error) {
	n := 0
	for n < len(z.out) && !last {
		k, err := z.dec.Read(z.out[n:])
		z.remember(z.out[n : n+k])
		n += k
		z.outSize += int64(k)
		switch {
		case z.outSize > limits.Message:
			return nil, false, errMessageTooBig
		case z.outSize > RatioFloor && z.outSize/int64(limits.Ratio) > int64(z.wireSize):
			return nil, false, errRatio
		case err == io.EOF:
			if last, err = z.endOfStream(); err != nil {
				return nil, false, err
			}
		case err != nil:
			return nil, false, errDeflate
		}
	}
	if last {
		z.in = z.in[:0]
		if cap(z.in) > maxHeld {
			z.in = nil
		}
	}
	return z.out[:n], last, nil
}

// endOfStream handles the end of a final block: that of the message, or one inside, behind which the
// message goes on.
func (z *inflater) endOfStream() (last bool, err error) {
	if z.src.Len() == 0 {
		return true, nil
	}
	if z.finals++; z.finals > maxFinalBlocks {
		return false, errDeflate
	}
	z.restart()
	return false, nil
}

// remember adds content to the window.
func (z *inflater) remember(p []byte) {
	if len(z.window)+len(p) > 2*windowSize {
		z.window = z.window[:copy(z.window, z.window[len(z.window)-windowSize:])]
	}
	z.window = append(z.window, p...)
}

// deflater compresses messages.
type deflater struct {
	takeover  bool
	threshold int
	enc       *flate.Writer
	out       sliceWriter
	open      bool // a message is under way
}

// sliceWriter collects what is written to it.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

func newDeflater(role Role, d Deflate) *deflater {
	z := &deflater{takeover: !d.ClientNoTakeover, threshold: d.Threshold}
	bits := d.ClientWindowBits
	if role == Server {
		z.takeover, bits = !d.ServerNoTakeover, d.ServerWindowBits
	}
	if z.threshold == 0 {
		z.threshold = DefaultThreshold
	}
	level := d.Level
	if level == 0 {
		level = 1
	}
	var err error
	if bits == 0 || bits == 15 {
		z.enc, err = flate.NewWriter(&z.out, level)
	} else {
		z.enc, err = flate.NewWriterWindow(&z.out, 1<<bits)
	}
	if err != nil {
		panic("websocket: " + err.Error()) // bits or level out of their range
	}
	return z
}

// compress returns the compressed form of the next part of a message, which is valid until the next
// call. The output of a part may be empty, that of the last part never is.
func (z *deflater) compress(p []byte, last bool) []byte {
	if !z.open && !z.takeover {
		z.enc.Reset(&z.out)
	}
	z.open = !last
	z.out.b = z.out.b[:0]
	_, _ = z.enc.Write(p) // a sliceWriter does not fail
	if last {
		_ = z.enc.Flush()
		z.out.b = z.out.b[:len(z.out.b)-len(flushed)]
	}
	return z.out.b
}
