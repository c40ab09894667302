package inspect

import (
	"fmt"
	"testing"
)

// Writes of SMB say where their bytes belong (MS-SMB2 2.2.21): in any order, with gaps of any length that later ones fill, and over
// one another, they make one file.
func TestWritesOfSMBInAnyOrder(t *testing.T) {
	const id, text = "0123456789abcdef", "evil"
	rules := `alert smb any any -> any any (file.data; content:"evil"; startswith; endswith; bsize:4; sid:1;)`
	for _, order := range permutations(len(text)) {
		for _, width := range []int{1, 2, 3} { // of 2 and 3, each write lies over its neighbours
			l := newLab(t, rules)
			c := l.tcp(445).open().send(true, smbCreate(1, "f"), 1400).send(false, smbCreated(1, id), 1400)
			for _, at := range order {
				c.send(true, smbWrite(id, uint64(at), text[at:min(at+width, len(text))]), 1400)
			}
			c.send(true, smbClosed(id), 1400)
			l.want(fmt.Sprintf("writes of %d bytes at %v", width, order), "1")
		}
	}
}

// What lies in a gap that nothing filled is zeros, and a write over bytes replaces them.
func TestGapsAndRewritesOfSMB(t *testing.T) {
	const id = "0123456789abcdef"
	type write struct {
		at   uint64
		text string
	}
	for name, c := range map[string]struct {
		writes []write
		want   string // the content of the rule
	}{
		"a gap of one byte":          {[]write{{1, "b"}}, "|00|b"},
		"a gap behind bytes":         {[]write{{0, "a"}, {2, "c"}}, "a|00|c"},
		"a gap of three":             {[]write{{0, "a"}, {4, "e"}}, "a|00 00 00|e"},
		"no gap":                     {[]write{{0, "a"}, {1, "b"}}, "ab"},
		"written twice":              {[]write{{0, "abc"}, {1, "X"}}, "aXc"},
		"over the end":               {[]write{{0, "abc"}, {2, "XY"}}, "abXY"},
		"before what is there":       {[]write{{2, "c"}, {0, "ab"}}, "abc"},
		"nothing at all":             {[]write{{0, "a"}, {9, ""}}, "a"},
		"beyond what is inspected":   {[]write{{0, "a"}, {1 << 40, "b"}}, "a"},
		"beyond what a number holds": {[]write{{0, "a"}, {1<<64 - 1, "b"}}, "a"},
	} {
		l := newLab(t, `alert smb any any -> any any (file.data; content:"`+c.want+`"; startswith; endswith; sid:1;)`)
		conn := l.tcp(445).open().send(true, smbCreate(1, "f"), 1400).send(false, smbCreated(1, id), 1400)
		for _, w := range c.writes {
			conn.send(true, smbWrite(id, w.at, w.text), 1400)
		}
		conn.send(true, smbClosed(id), 1400)
		l.want(name, "1")
	}
}

// permutations returns the orders of the numbers below n.
func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, rest := range permutations(n - 1) {
		for at := range n {
			order := append(append(append([]int(nil), rest[:at]...), n-1), rest[at:]...)
			all = append(all, order)
		}
	}
	return all
}
