package tls

import "sync"

// Sizes of records in bytes. A ciphertext may exceed its plaintext by 256 bytes in TLS 1.3 and by 2048 before
// (RFC 8446 5.2, RFC 5246 6.2.3).
const (
	recordHeader   = 5
	maxPlaintext   = 1 << 14
	maxCiphertext  = maxPlaintext + 256
	maxCiphertext2 = maxPlaintext + 2048
	maxOverhead    = recordHeader + 8 + 1 + 16 // of a record that an engine writes: nonce, type, tag
	maxRecord      = maxPlaintext + maxOverhead
)

// Connections that are idle hold no buffers. There are two sizes: most records of requests and responses
// are small, and a peer that sends half of one should not occupy the memory of a large one.
const (
	smallBuffer = 2 << 10
	largeBuffer = recordHeader + maxCiphertext2
)

var (
	smallBuffers = sync.Pool{New: func() any { return newBuffer(smallBuffer) }}
	largeBuffers = sync.Pool{New: func() any { return newBuffer(largeBuffer) }}
)

func newBuffer(size int) *[]byte {
	b := make([]byte, 0, size)
	return &b
}

// takeBuffer returns an empty buffer with a capacity of n bytes or more.
func takeBuffer(n int) *[]byte {
	switch {
	case n <= smallBuffer:
		return smallBuffers.Get().(*[]byte)
	case n <= largeBuffer:
		return largeBuffers.Get().(*[]byte)
	}
	return newBuffer(n)
}

// giveBuffer returns a buffer, which may have become larger, to its pool.
func giveBuffer(b *[]byte) {
	*b = (*b)[:0]
	switch c := cap(*b); {
	case c >= largeBuffer && c <= 8*largeBuffer:
		largeBuffers.Put(b)
	case c >= smallBuffer && c < largeBuffer:
		smallBuffers.Put(b)
	}
}

// output is ciphertext that the transport has not taken yet. It has a buffer only as long as there is some.
type output struct {
	buf    []byte
	sent   int     // bytes of buf that were sent
	pooled *[]byte // the buffer's handle in the pool
}

func (o *output) pending() []byte { return o.buf[o.sent:] }

// grow makes the free capacity n bytes or more.
func (o *output) grow(n int) {
	if cap(o.buf)-len(o.buf) >= n {
		return
	}
	if o.sent > 0 && cap(o.buf)-len(o.buf)+o.sent >= n {
		o.buf = o.buf[:copy(o.buf[:cap(o.buf)], o.pending())]
		o.sent = 0
		return
	}
	b := takeBuffer(max(len(o.pending())+n, 2*len(o.pending())))
	*b = append(*b, o.pending()...)
	o.release()
	o.pooled, o.buf = b, *b
}

// set replaces the buffer by itself with more bytes, within its capacity.
func (o *output) set(buf []byte) { o.buf = buf }

// write appends a copy.
func (o *output) write(p []byte) {
	o.grow(len(p))
	o.buf = append(o.buf, p...)
}

func (o *output) advance(n int) {
	if o.sent += n; o.sent == len(o.buf) {
		o.release()
	}
}

// moveTo appends what is pending to dst, as far as its capacity goes.
func (o *output) moveTo(dst []byte) []byte {
	if o.pooled == nil {
		return dst
	}
	n := copy(dst[len(dst):cap(dst)], o.pending())
	o.advance(n)
	return dst[:len(dst)+n]
}

func (o *output) release() {
	if o.pooled != nil {
		*o.pooled = o.buf
		giveBuffer(o.pooled)
	}
	*o = output{}
}
