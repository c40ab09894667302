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

// small is for what is mostly a whole request, and large for content. What waits to be sent lies in a little one, or in one
// that is large enough for all that there is room for, with headers of frames.
var (
	small  = &chunks{size: 2 << 10}
	large  = &chunks{size: 16 << 10}
	little = &chunks{size: 16 << 10}
	whole  = &chunks{size: MaxHeld + 1<<10}
)

func (p *chunks) get() *chunk {
	if c, ok := p.pool.Get().(*chunk); ok {
		return c
	}
	return &chunk{b: make([]byte, 0, p.size), from: p}
}

// add appends p to a chunk, which may be nil. It takes the chunk, and returns it or a larger one.
func (c *chunk) add(p []byte) *chunk {
	n := c.size() + len(p)
	if c != nil && n <= cap(c.b) {
		c.b = append(c.b, p...)
		return c
	}
	next := little
	if n > little.size {
		next = whole
	}
	to := next.get()
	if c != nil {
		to.b = append(to.b, c.b...)
		c.free()
	}
	to.b = append(to.b, p...)
	return to
}

// free returns a chunk, which may be nil, to its pool. One that has grown is left to the collector.
func (c *chunk) free() {
	if c == nil || cap(c.b) > c.from.size {
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
