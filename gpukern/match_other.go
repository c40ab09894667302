//go:build !amd64 || purego

package gpukern

// scanAll answers all questions.
func (d *decision) scanAll(q []scanQuery) { d.scanPlain(q) }

// prefetchItems does nothing: see prefetch.
func (d *decision) prefetchItems([]uint32) {}
