package vring

import "fmt"

// Chain is a buffer that a driver has made available, as pieces of its memory. A Device fills it in; its slices are reused.
type Chain struct {
	In  [][]byte // what the device reads
	Out [][]byte // what the device writes

	// Err reports that the chain is unusable (ErrChain); it still has to be returned. The pieces are those before the error.
	Err error

	id    uint16 // of the buffer
	slots uint16 // descriptors of a packed ring that it takes
	count int    // descriptors so far
}

func (c *Chain) reset(id, slots uint16) {
	c.In, c.Out, c.Err, c.id, c.slots, c.count = c.In[:0], c.Out[:0], nil, id, slots, 0
}

// InLen returns the bytes that the device may read.
func (c *Chain) InLen() (n int) {
	for _, p := range c.In {
		n += len(p)
	}
	return n
}

// OutLen returns the bytes that the device may write.
func (c *Chain) OutLen() (n int) {
	for _, p := range c.Out {
		n += len(p)
	}
	return n
}

// add appends the buffer of one descriptor, and reports false after an error.
func (c *Chain) add(m *Memory, addr uint64, n uint32, write bool) bool {
	if !write && len(c.Out) > 0 {
		return c.fail("a buffer to read follows one to write") // 2.6.4.2
	}
	for n > 0 {
		p := m.At(addr, n)
		if len(p) == 0 {
			return c.fail("%d bytes at %#x are not in the guest's memory", n, addr)
		}
		if write {
			c.Out = append(c.Out, p)
		} else {
			c.In = append(c.In, p)
		}
		addr += uint64(len(p))
		n -= uint32(len(p))
	}
	return true
}

func (c *Chain) fail(format string, args ...any) bool {
	c.Err = fmt.Errorf("%w: "+format, append([]any{ErrChain}, args...)...)
	return false
}

// table returns the descriptors of an indirect table.
func (c *Chain) table(m *Memory, d descriptor, size uint16) []byte {
	n := int(d.length)
	if n == 0 || n%descSize != 0 || n/descSize > int(size) {
		c.fail("an indirect table of %d bytes", n)
		return nil
	}
	if t := m.At(d.addr, d.length); len(t) == n {
		return t
	}
	c.fail("an indirect table of %d bytes at %#x is not in one region of the guest's memory", n, d.addr)
	return nil
}
