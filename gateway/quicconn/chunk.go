package quicconn

import "sync"

// chunk is a buffer for bytes of one stream.
type chunk struct {
	b    []byte
	from *chunks
}

// chunks is a pool of chunks of one size.
type chunks struct {
	size int
	pool sync.Pool
}

// small is for what is mostly a whole request, large for content, and outgoing for what waits to be sent.
var (
	small    = &chunks{size: 2 << 10}
	large    = &chunks{size: 16 << 10}
	outgoing = &chunks{size: 16 << 10}
)

func (p *chunks) get() *chunk {
	if c, ok := p.pool.Get().(*chunk); ok {
		return c
	}
	return &chunk{b: make([]byte, 0, p.size), from: p}
}

// free returns a chunk, which may be nil, to its pool. One that has grown beyond measure is left to the collector.
func (c *chunk) free() {
	if c == nil || cap(c.b) > 4*c.from.size {
		return
	}
	c.b = c.b[:0]
	c.from.pool.Put(c)
}

func (c *chunk) size() int {
	if c == nil {
		return 0
	}
	return len(c.b)
}
