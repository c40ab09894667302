package memory

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

const all = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic

func newTable() *Table {
	r := rand.New(rand.NewPCG(7, 8))
	return NewTable(r.Uint32)
}

func TestRegister(t *testing.T) {
	for _, c := range []struct {
		size   int
		va     uint64
		access Access
		want   error
	}{
		{8, 0, all, nil},
		{8, 100, RemoteRead, nil},
		{8, math.MaxUint64 - 7, LocalRead, nil},
		{8, math.MaxUint64 - 6, LocalRead, ErrWraps},
		{0, 0, all, ErrEmpty},
		{8, 0, RemoteWrite, ErrAccess},
		{8, 0, RemoteAtomic | RemoteRead, ErrAccess},
	} {
		if _, err := newTable().Register(1, make([]byte, c.size), c.va, c.access); !errors.Is(err, c.want) {
			t.Errorf("%d bytes at %d: %v, want %v", c.size, c.va, err, c.want)
		}
	}
}

// TestSlice compares with a shadow map: for regions beside each other and random accesses, exactly those bytes are reached
// that the region has.
func TestSlice(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	tab := newTable()
	mem := make([]byte, 4096)
	for i := range mem {
		mem[i] = byte(i ^ i>>8)
	}
	type shadow struct {
		pd     PD
		key    uint32
		va     uint64
		at, n  int
		access Access
	}
	var regions []shadow
	vas := []uint64{0, 1 << 12, math.MaxUint64 - 200, 0xffffff00}
	for i := range 40 {
		s := shadow{pd: PD(i % 3), va: vas[i%4], at: i * 100, n: 1 + r.IntN(90), access: Access(r.IntN(8) << 1)}
		if s.access&(RemoteWrite|RemoteAtomic) != 0 {
			s.access |= LocalWrite
		}
		var err error
		if s.key, err = tab.Register(s.pd, mem[s.at:s.at+s.n], s.va, s.access); err != nil {
			t.Fatal(err)
		}
		regions = append(regions, s)
	}
	reached := 0
	for range 200000 {
		s := regions[r.IntN(len(regions))]
		va := s.va + uint64(r.IntN(300)) - 100
		n, pd, want := uint32(1+r.IntN(120)), PD(r.IntN(3)), Access(r.IntN(16))
		if r.IntN(50) == 0 {
			n = math.MaxUint32 - uint32(r.IntN(3))
		}
		got := tab.Slice(Accessor{PD: pd}, s.key, va, n, want)
		inside := pd == s.pd && s.access&want == want
		for _, end := range []uint64{0, uint64(n) - 1} { // both ends lie in the region, without a wrap
			off := va - s.va + end
			inside = inside && off < uint64(s.n) && va-s.va < uint64(s.n)
		}
		if inside != (got != nil) {
			t.Fatalf("%+v: %d bytes at %d, rights %b: %v", s, n, va, want, got != nil)
		}
		if got != nil {
			reached++
			if len(got) != int(n) || cap(got) != int(n) || &got[0] != &mem[s.at+int(va-s.va)] {
				t.Fatalf("%+v: %d bytes at %d are others", s, n, va)
			}
		}
	}
	if reached < 500 {
		t.Errorf("only %d accesses were permitted", reached)
	}
}

func TestKeys(t *testing.T) {
	tab := newTable()
	mem := make([]byte, 8)
	seen := map[uint32]bool{}
	last := uint32(0)
	for range 600 {
		key, err := tab.Register(1, mem, 0, all)
		if err != nil {
			t.Fatal(err)
		}
		if key == last || key&0xff == last&0xff && last != 0 {
			t.Fatalf("key %#x follows %#x", key, last)
		}
		if tab.Slice(Accessor{PD: 1}, last, 0, 1, 0) != nil {
			t.Fatalf("the key of a region that has ended, %#x, reaches the one that follows, %#x", last, key)
		}
		for bit := range 32 {
			if tab.Slice(Accessor{PD: 1}, key^1<<bit, 0, 1, 0) != nil {
				t.Fatalf("key %#x with bit %d changed is good", key, bit)
			}
		}
		seen[key>>24] = true
		last = key
		if err := tab.Deregister(key); err != nil {
			t.Fatal(err)
		}
		if tab.Slice(Accessor{PD: 1}, key, 0, 1, 0) != nil || tab.Deregister(key) == nil || tab.Len() != 0 {
			t.Fatal("the region goes on after its end")
		}
	}
	if len(seen) < 200 {
		t.Errorf("only %d upper bytes of keys", len(seen))
	}
}

func TestInvalidate(t *testing.T) {
	tab := newTable()
	key, _ := tab.Register(1, make([]byte, 8), 0, all)
	if tab.Invalidate(Accessor{PD: 2}, key) || tab.Invalidate(Accessor{PD: 1}, key^1) {
		t.Error("a region of another domain, or an unknown one, was invalidated")
	}
	if tab.Slice(Accessor{PD: 1}, key, 0, 8, RemoteWrite) == nil || !tab.Invalidate(Accessor{PD: 1}, key) || tab.Invalidate(Accessor{PD: 1}, key) {
		t.Error("invalidate works once")
	}
	for _, right := range []Access{RemoteWrite, RemoteRead, RemoteAtomic} {
		if tab.Slice(Accessor{PD: 1}, key, 0, 8, right) != nil {
			t.Errorf("right %b is left", right)
		}
	}
	if tab.Slice(Accessor{PD: 1}, key, 0, 8, LocalWrite) == nil || tab.Deregister(key) != nil {
		t.Error("the owner cannot use the region")
	}
}

func TestFullTable(t *testing.T) {
	tab := newTable()
	mem := make([]byte, 1)
	var keys []uint32
	for range mostPlace - 1 {
		key, err := tab.Register(1, mem, 0, all)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if _, err := tab.Register(1, mem, 0, all); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	if tab.Deregister(keys[77]) != nil {
		t.Fatal("deregister")
	}
	if _, err := tab.Register(1, mem, 0, all); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// far is memory of another process, from address 0x9000 on. It counts what is moved.
type far struct {
	mem           []byte
	reads, writes int
	gone          bool
}

func (f *far) Read(b []byte, addr uint64) bool {
	f.reads++
	return !f.gone && copy(b, f.mem[addr-0x9000:]) == len(b)
}

func (f *far) Write(b []byte, addr uint64) bool {
	f.writes++
	return !f.gone && copy(f.mem[addr-0x9000:], b) == len(b)
}

// TestRemote moves bytes of another process by copies: reads at once, writes with Commit, both for atomics.
func TestRemote(t *testing.T) {
	tab, f := newTable(), &far{mem: []byte("0123456789abcdef")}
	key, err := tab.RegisterRemote(1, f, 0x9004, 8, 1000, all)
	if err != nil {
		t.Fatal(err)
	}
	if b := tab.Slice(Accessor{PD: 1}, key, 1002, 3, RemoteRead); string(b) != "678" || f.writes != 0 {
		t.Errorf("read %q, with %d writes", b, f.writes)
	}
	for _, c := range [][2]uint64{{999, 1}, {1000, 9}, {1007, 2}, {1008, 1}} {
		if tab.Slice(Accessor{PD: 1}, key, c[0], uint32(c[1]), RemoteRead) != nil || tab.Permits(Accessor{PD: 1}, key, c[0], uint32(c[1]), RemoteRead) {
			t.Errorf("%d bytes at %d are not in the region", c[1], c[0])
		}
	}
	tab.Begin()
	reads := f.reads
	copy(tab.Slice(Accessor{PD: 1}, key, 1000, 2, RemoteWrite), "XY")
	copy(tab.Slice(Accessor{PD: 1}, key, 1002, 1, LocalWrite), "Z")
	if f.reads != reads || string(f.mem) != "0123456789abcdef" {
		t.Errorf("a write has moved bytes before Commit: %q", f.mem)
	}
	if !tab.Commit() || string(f.mem) != "0123XYZ789abcdef" || f.writes != 2 {
		t.Errorf("%q after %d writes", f.mem, f.writes)
	}
	if b := tab.Slice(Accessor{PD: 1}, key, 1000, 8, RemoteAtomic); string(b) != "XYZ789ab" {
		t.Errorf("an atomic reads %q", b)
	}
	tab.Begin() // it is given up
	if !tab.Commit() || f.writes != 2 {
		t.Error("what was given up is written")
	}
	if !tab.Permits(Accessor{PD: 1}, key, 1000, 8, LocalWrite) || tab.Permits(Accessor{PD: 2}, key, 1000, 8, LocalWrite) {
		t.Error("Permits differs from Slice")
	}
	f.gone = true
	if tab.Slice(Accessor{PD: 1}, key, 1000, 1, RemoteRead) != nil || tab.Slice(Accessor{PD: 1}, key, 1000, 1, RemoteWrite) == nil || tab.Commit() {
		t.Error("memory that is gone is reached")
	}
	if err := tab.Deregister(key); err != nil || tab.Slice(Accessor{PD: 1}, key, 1000, 1, RemoteWrite) != nil {
		t.Error("a region that has ended is reached")
	}
}

// TestRemoteBounds refuses regions beyond the last address, and more bytes at once than a packet has.
func TestRemoteBounds(t *testing.T) {
	tab, f := newTable(), &far{mem: make([]byte, 3*stagingSize)}
	if _, err := tab.RegisterRemote(1, f, math.MaxUint64-3, 5, 0, all); !errors.Is(err, ErrWraps) {
		t.Errorf("%v, want ErrWraps", err)
	}
	if _, err := tab.RegisterRemote(1, f, 0x9000, 0, 0, all); !errors.Is(err, ErrEmpty) {
		t.Errorf("%v, want ErrEmpty", err)
	}
	key, err := tab.RegisterRemote(1, f, 0x9000, 3*stagingSize, 0, all)
	if err != nil {
		t.Fatal(err)
	}
	if tab.Slice(Accessor{PD: 1}, key, 0, stagingSize+1, RemoteRead) != nil || tab.Slice(Accessor{PD: 1}, key, 0, stagingSize, RemoteRead) == nil || tab.Slice(Accessor{PD: 1}, key, 0, 1, RemoteRead) != nil {
		t.Error("the staging memory has other bounds")
	}
	tab.Begin()
	if tab.Slice(Accessor{PD: 1}, key, 0, 1, RemoteRead) == nil {
		t.Error("Begin has not freed it")
	}
}
