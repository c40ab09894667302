package defence

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/gateway/config"
)

const base = `
devices: [{name: gw0}]
services: [{name: web, address: 198.18.1.1:80, source: client, backends: [{address: 198.18.2.1:80}]}]
defence:
  max_verdicts: 4
  time: 1s
`

// read reads a configuration whose list file has some lines.
func read(t *testing.T, more string, list string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "list.txt"), []byte(list), 0o600))
	file := filepath.Join(dir, "gateway.yaml")
	must(t, os.WriteFile(file, []byte(base+more), 0o600))
	c, err := config.Load(file)
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, more, list string) *Defence {
	t.Helper()
	d, err := Open(read(t, more, list))
	if errors.Is(err, unix.EPERM) && os.Getenv("MILLRACE_MUST_NETNS") == "" {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func on(s string) Verdict { return Verdict{Source: prefix(s), Rule: "test"} }

// inKernel returns how many entries the kernel has.
func (d *Defence) inKernel(t *testing.T) (n int) {
	t.Helper()
	must(t, d.maps.Verdicts(func(ebpf.Verdict) { n++ }))
	return n
}

func TestVerdictsAreBounded(t *testing.T) {
	d := open(t, "  accept: [198.18.9.0/24]\n  drop: [198.18.8.0/24]\n", "")
	for i := range 4 {
		must(t, d.Submit(on(fmt.Sprintf("198.18.0.%d/32", i+1))))
	}
	for s, want := range map[string]error{"198.18.0.5/32": ErrFull, "198.18.9.7/32": ErrAccepted, "198.18.8.0/24": ErrListed} {
		if err := d.Submit(on(s)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", s, err, want)
		}
	}
	st, err := d.Status()
	must(t, err)
	if len(st.Verdicts) != 4 || st.Refused["full"] != 1 || st.Refused["accepted"] != 1 || st.Refused["listed"] != 1 || st.Listed != 2 {
		t.Errorf("%+v", st)
	}
}

// A verdict that is decided on again begins anew and takes no second place; ended ones make place.
func TestVerdictsEndAndMakePlace(t *testing.T) {
	d := open(t, "", "")
	for range 3 {
		must(t, d.Submit(on("198.18.0.1/32")))
		d.noteAll()
	}
	if n := d.entered.Load(); n != 1 {
		t.Errorf("%d places for one source", n)
	}
	d.sweep(time.Now().Add(2 * time.Second))
	if n := d.entered.Load(); n != 0 || d.inKernel(t) != 0 {
		t.Errorf("after the end %d places, %d entries in the kernel", n, d.inKernel(t))
	}
	must(t, d.Add(on("198.18.0.1/32"), true))
	d.sweep(time.Now().Add(time.Hour))
	if st, _ := d.Status(); len(st.Verdicts) != 1 || st.Verdicts[0].Left != 0 {
		t.Errorf("%+v, want one without an end", st.Verdicts)
	}
	must(t, d.Remove(prefix("198.18.0.1/32")))
	if err := d.Remove(prefix("198.18.0.1/32")); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestReloadChangesLists(t *testing.T) {
	d := open(t, "  drop: [list.txt]\n", "198.18.8.0/24\n2001:db8::/32\n198.18.7.7\n")
	if n := d.inKernel(t); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
	must(t, d.Submit(on("198.18.0.1/32")))
	must(t, d.Submit(on("198.18.0.2/32")))
	must(t, d.Reload(read(t, "  drop: [list.txt]\n  accept: [198.18.0.2/31]\n  rates: [{sources: [192.0.2.0/24], packets: 10}]\n", "198.18.8.0/24\n198.18.0.1\n")))
	st, err := d.Status()
	must(t, err)
	if len(st.Verdicts) != 0 || st.Listed != 4 || d.inKernel(t) != 4 || d.entered.Load() != 0 {
		t.Errorf("%+v, %d entries in the kernel, %d places; want 4 of lists and no verdicts", st, d.inKernel(t), d.entered.Load())
	}
}

func TestExcessFindsTheSourceThatIsRefusedMost(t *testing.T) {
	e := NewExcess(100, time.Second)
	heavy, now := netip.MustParseAddr("198.18.0.1"), time.Duration(0)
	found := 0
	for i := range 400 {
		now += time.Millisecond
		if e.Add(heavy, 1, now) {
			found++
		}
		for j := range 50 { // others, each once or twice
			if e.Add(netip.AddrFrom4([4]byte{10, byte(j), byte(i >> 8), byte(i)}), 1, now) {
				t.Fatal("a source that was refused once is reported")
			}
		}
	}
	if found < 3 || found > 4 {
		t.Errorf("reported %d times for 400 refusals, want once in 100", found)
	}
	if e.Add(heavy, 99, now+2*time.Second) {
		t.Error("counts of another window are added")
	}
	if !e.Add(heavy, 1, now+2*time.Second) {
		t.Error("the hundredth of a window is not reported")
	}
}

func TestSourceIsAnAddressOrA64(t *testing.T) {
	for addr, want := range map[string]string{"198.18.0.1": "198.18.0.1/32", "::ffff:198.18.0.1": "198.18.0.1/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64"} {
		if got := Source(netip.MustParseAddr(addr)); got.String() != want {
			t.Errorf("%s: %v, want %s", addr, got, want)
		}
	}
}
