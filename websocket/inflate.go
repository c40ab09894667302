package websocket

import (
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// maxFinalBlocks bounds the final blocks inside of a message (RFC 7692 7.2.3.5): the decoder begins anew
// behind each, which costs more than the few bytes that they have.
const maxFinalBlocks = 16

// inflater decompresses messages. It holds the compressed form until a message is complete and returns
// its content in parts, so that memory is bounded whatever the ratio.
type inflater struct {
	in       []byte        // compressed form of the message
	d        *decompressor // nil between messages
	takeover bool
	compact  bool
	size     int    // of the window
	window   []byte // the last content, of which the end counts
	wireSize int
	outSize  int64
	finals   int
}

// decompressor holds a DEFLATE reader and its output. It depends on nothing but the window, so a pool keeps those
// that no message needs.
type decompressor struct {
	src    bytes.Reader
	dec    io.ReadCloser // also a flate.Resetter
	window []byte        // room for that of a message without takeover
	out    [4096]byte
}

var decompressors = sync.Pool{New: func() any { return &decompressor{} }}

func newInflater(role Role, d Deflate) *inflater {
	z := &inflater{takeover: !d.ClientNoTakeover, compact: d.Compact, size: windowBytes(d.ClientWindowBits)}
	if role == Client {
		z.takeover, z.size = !d.ServerNoTakeover, windowBytes(d.ServerWindowBits)
	}
	return z
}

// begin starts the decompression of the message that z.in has.
func (z *inflater) begin() {
	z.wireSize = len(z.in)
	z.in = append(append(z.in, flushed...), final...)
	if z.d == nil {
		z.d = decompressors.Get().(*decompressor)
	}
	z.d.src.Reset(z.in)
	z.outSize, z.finals = 0, 0
	if !z.takeover {
		z.window = z.d.window[:0]
	}
	z.restart()
}

// restart begins a DEFLATE stream at the current input with the current window.
func (z *inflater) restart() {
	if z.d.dec == nil {
		z.d.dec = flate.NewReaderDict(&z.d.src, z.history())
		return
	}
	// Reset of this type does not fail.
	_ = z.d.dec.(flate.Resetter).Reset(&z.d.src, z.history())
}

// history returns the content that the next bytes may refer to.
func (z *inflater) history() []byte { return z.window[max(0, len(z.window)-z.size):] }

// next returns the next part of the message; last says that it is complete. The part is valid until the
// next call.
func (z *inflater) next(limits Limits) (part []byte, last bool, err error) {
	n, out := 0, z.d.out[:]
	for n < len(out) && !last {
		k, err := z.d.dec.Read(out[n:])
		z.remember(out[n : n+k])
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
		if cap(z.in) > maxHeld || z.compact && cap(z.in) > maxHeldCompact {
			z.in = nil
		}
	}
	return out[:n], last, nil
}

// endOfStream handles the end of a final block: that of the message, or one inside, behind which the
// message goes on.
func (z *inflater) endOfStream() (last bool, err error) {
	if z.d.src.Len() == 0 {
		return true, nil
	}
	if z.finals++; z.finals > maxFinalBlocks {
		return false, errDeflate
	}
	z.restart()
	return false, nil
}

// remember adds content to the window. A compact one moves it for each part, and needs no more than its size.
func (z *inflater) remember(p []byte) {
	slack := z.size
	if z.compact {
		slack = 0
	}
	z.window = remember(z.window, p, z.size, slack)
}

// release returns the decompressor, whose output is not used any more.
func (z *inflater) release() {
	if z.d == nil {
		return
	}
	if !z.takeover {
		z.d.window, z.window = z.window, nil
	}
	z.d.src.Reset(nil)
	decompressors.Put(z.d)
	z.d = nil
}
