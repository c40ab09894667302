//go:build amd64 && !purego

package acl

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// What the machine can do, read once. Tests switch it off to reach the other form.
var treeByAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasBMI1 && cpu.X86.HasBMI2

//go:noescape
func descendAVX512(words *uint32, keys *treeKey, at *uint32, n int)

//go:noescape
func compareAVX512(blocks *block, places *uint64, keys *treeKey, at *uint32, found *uint16, n int)

// descend replaces the words of roots by those of leaves. What lies behind keys and at, up to a multiple of 32,
// is written, too.
func (t *tree) descend(keys []treeKey, at []uint32) {
	if !treeByAVX512 || len(t.words) == 0 {
		t.descendPlain(keys, at)
		return
	}
	n := (len(at) + 31) &^ 31
	clear(at[len(at):n]) // at a leaf
	descendAVX512(&t.words[0], &keys[0], &at[0], n)
}

// compare lowers found to the places of rules in the packets' blocks that match.
func (t *tree) compare(keys []treeKey, at []uint32, found []uint16) {
	if !treeByAVX512 {
		t.comparePlain(keys, at, found)
		return
	}
	compareAVX512(&t.blocks[0], (*uint64)(unsafe.Pointer(&t.places[0])), &keys[0], &at[0], &found[0], len(at))
}
