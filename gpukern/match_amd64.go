//go:build amd64 && !purego

package gpukern

import "unsafe"

//go:noescape
func scanAVX512(items *item, q *scanQuery, n int)

// scanAll answers all questions.
func (d *decision) scanAll(q []scanQuery) {
	if useAVX512 && len(q) > 0 {
		scanAVX512(&d.items[0], &q[0], len(q))
		return
	}
	d.scanPlain(q)
}

// prefetchItems asks for the first items of lists, and does not wait.
func (d *decision) prefetchItems(at []uint32) { prefetch(unsafe.Pointer(&d.items[0]), 4, at) }
