package config

import (
	"encoding/binary"
	"net/netip"
	"os"
	"runtime"
	"testing"
)

// A file of a million prefixes of both families: each is in the table, the memory for it has a bound, and what a load allocates too, as a
// reload has two tables for a moment.
func TestAMillionPrefixesInAFile(t *testing.T) {
	const prefixes = 1_000_000
	text := make([]byte, 0, 20*prefixes)
	v4 := func(i int) netip.Addr { // of a /24 each, spread over 16 million
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(i*13+1<<16)<<8)
		return netip.AddrFrom4(b)
	}
	v6 := func(i int) netip.Addr { // of a /48 each
		b := [16]byte{0x20, 1}
		binary.BigEndian.PutUint32(b[2:], uint32(i)*2654435761)
		return netip.AddrFrom16(b)
	}
	for i := range prefixes {
		p := netip.PrefixFrom(v4(i), 24)
		if i%4 == 0 {
			p = netip.PrefixFrom(v6(i), 48)
		}
		text = append(p.AppendTo(text), '\n')
	}
	path := listConfigFile(t, "sources: {deny: deny.txt}", map[string]string{"deny.txt": string(text)})
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(path, src)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := c.ReadLists(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	table := c.Lists().All.Prefixes
	if n, size := table.Len(), table.Size(); n != prefixes || size > 64<<20 {
		t.Errorf("%d prefixes in %d bytes", n, size)
	}
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 512<<20 {
		t.Errorf("%d bytes were allocated", allocated)
	}
	for i := range prefixes {
		a := v4(i)
		if i%4 == 0 {
			a = v6(i)
		}
		if table.Lookup(a) != SourceDeny {
			t.Fatalf("%v is not in the table", a)
		}
	}
}
