//go:build !amd64 || purego

package acl

// scanAll answers all questions.
func (d *decision) scanAll(q []scanQuery) { d.scanPlain(q) }

// prefetchItems does nothing: see lpm.Prefetch.
func (d *decision) prefetchItems([]uint32) {}
