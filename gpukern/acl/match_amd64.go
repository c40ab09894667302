//go:build amd64 && !purego

package acl

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/millrace/millrace/gpukern/lpm"
)

// What the machine can do, read once. Tests switch it off to reach the other form.
var scanByAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasBMI1

//go:noescape
func scanAVX512(items *item, q *scanQuery, n int)

// scanAll answers all questions.
func (d *decision) scanAll(q []scanQuery) {
	if scanByAVX512 && len(q) > 0 {
		scanAVX512(&d.items[0], &q[0], len(q))
		return
	}
	d.scanPlain(q)
}

// prefetchItems asks for the first items of lists, and does not wait.
func (d *decision) prefetchItems(at []uint32) { lpm.Prefetch(unsafe.Pointer(&d.items[0]), 4, at) }
