package control

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/packet"
)

// listConfig is a configuration with lists, in a folder with the given files.
func listConfig(t testing.TB, sources string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(path, []byte(sources+"\ntable: {size: 1024}"+strings.Replace(fill(""), "table: {size: 1024}", "", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t testing.TB, path string) *config.Config {
	t.Helper()
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheLongestPrefixDecides(t *testing.T) {
	path := listConfig(t, `sources: {deny: [deny.txt, 198.18.64.0/24], allow: [allow.txt]}`, map[string]string{
		"deny.txt":  "# comment\n\n198.18.32.0/20   # more\r\n198.18.32.0/20\n2001:db8:bad::/48\n198.18.0.66",
		"allow.txt": "198.18.33.0/24\n",
	})
	c := load(t, path)
	w := newWorldWith(t, c, hopsOf(c))
	for src, denied := range map[string]bool{
		"198.18.0.9:4000": false, "198.18.32.9:4000": true, "198.18.33.9:4000": false, "198.18.47.255:4000": true, "198.18.48.0:4000": false,
		"198.18.64.1:4000": true, "198.18.0.66:4000": true, "198.18.0.67:4000": false,
	} {
		if s := w.send(0, client(src, dns, "").bytes()); (s.verdict == packet.DropDenied) != denied {
			t.Errorf("%s: %v", src, s.verdict)
		}
	}
	w.refused(0, client("[2001:db8:bad::1]:4000", "[2001:db8:1::1]:53", "").bytes(), packet.DropDenied)
	w.expect(0, client("[2001:db8:bae::1]:4000", "[2001:db8:1::1]:53", "").bytes(), 1)
	st := w.g.Status()
	if st.Services[1].Dropped["denied"] != 5 || st.Dropped["denied"] != 5 {
		t.Errorf("counted %v", st.Services[1].Dropped)
	}
}

func TestWhoIsInNoListIsDeniedByDefault(t *testing.T) {
	w := newWorld(t, "sources: {default: deny, allow: 198.18.0.0/24}\n"+fill("sources: {deny: 198.18.0.9}"))
	w.refused(0, client(host, dns, "").bytes(), packet.DropDenied) // by the service
	w.expect(0, client("198.18.0.10:4000", dns, "").bytes(), 1)
	w.refused(0, client("198.18.3.10:4000", dns, "").bytes(), packet.DropDenied)
	w.refused(0, client("[2001:db8::9]:4000", "[2001:db8:1::1]:53", "").bytes(), packet.DropDenied)
}

// A reload with other lists ends the connections that they deny, at their next packet.
func TestOpenConnectionsAreLookedAtWhenListsChange(t *testing.T) {
	w := newWorld(t, fill(""))
	open := func(src string) { w.expect(0, client(src, dns, "").bytes(), 1) }
	reload := func(lists string) {
		t.Helper()
		if err := w.g.Reload(parse(t, lists+"\n"+fill(""))); err != nil {
			t.Fatal(err)
		}
	}
	open(host)
	open("198.18.0.10:4000")
	reload("sources: {deny: 198.18.0.9}")
	w.refused(0, client(host, dns, "").bytes(), packet.DropDenied)
	open("198.18.0.10:4000")
	if n := w.g.Status().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
	reload("")
	open(host)
	w.audit()
}

// Marks of lists have 8 bits. A connection that has not been heard for 255 reloads is looked at all the same.
func TestMarksOfListsMayWrap(t *testing.T) {
	for _, reloads := range []int{253, 254, 255, 256, 510, 511} {
		w := newWorld(t, "sources: {deny: 198.18.77.1}\n"+fill(""))
		w.expect(0, client(host, dns, "").bytes(), 1)
		for i := range reloads {
			deny := "198.18.77.2"
			if i == reloads-1 {
				deny = "198.18.0.9"
			}
			if err := w.g.Reload(parse(t, "sources: {deny: "+deny+"}\n"+fill(""))); err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 { // a loop does not see every snapshot
				w.expect(0, client("198.18.0.10:4000", dns, "").bytes(), 1)
			}
		}
		if s := w.send(0, client(host, dns, "").bytes()); s.verdict != packet.DropDenied {
			t.Errorf("after %d reloads: %v", reloads, s.verdict)
		}
	}
}

// A wrong list rejects the reload.
func TestAWrongListRefusesTheReload(t *testing.T) {
	path := listConfig(t, "sources: {deny: deny.txt}", map[string]string{"deny.txt": "198.18.0.9"})
	c := load(t, path)
	w := newWorldWith(t, c, hopsOf(c))
	w.refused(0, client(host, dns, "").bytes(), packet.DropDenied)
	os.WriteFile(filepath.Join(filepath.Dir(path), "deny.txt"), []byte(strings.Repeat("x\n", 200)), 0o644)
	var ce *config.Error
	bad, err := config.Parse(path, mustRead(t, path))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.g.Reload(bad); !errors.As(err, &ce) {
		t.Errorf("a reload with it: %v", err)
	}
	w.refused(0, client(host, dns, "").bytes(), packet.DropDenied)
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A list of a million prefixes of both families, as a file.
func millionPrefixes(t testing.TB) (path string, some []netip.Addr) {
	r := rand.New(rand.NewPCG(5, 5))
	var text strings.Builder
	for i := range 1_000_000 {
		a := netip.AddrFrom4([4]byte{byte(1 + r.IntN(223)), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
		bits := 16 + r.IntN(17)
		if i%4 == 0 {
			a = netip.AddrFrom16([16]byte{0x20, 1, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
			bits = 24 + r.IntN(41)
		}
		p, _ := a.Prefix(bits)
		fmt.Fprintln(&text, p)
		if i%16 == 0 {
			some = append(some, a)
		}
	}
	return listConfig(t, "sources: {deny: deny.txt}", map[string]string{"deny.txt": text.String()}), some
}

// BenchmarkLists loads a list of a million prefixes and looks clients up in it.
func BenchmarkLists(b *testing.B) {
	path, some := millionPrefixes(b)
	var c *config.Config
	b.Run("load", func(b *testing.B) {
		var before, after runtime.MemStats
		for b.Loop() {
			c = nil
			runtime.GC()
			runtime.ReadMemStats(&before)
			start := time.Now()
			c = load(b, path)
			b.ReportMetric(time.Since(start).Seconds(), "s/load")
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/1e6, "MB-allocated")
		}
		b.ReportMetric(float64(c.Lists().All.Prefixes.Size())/1e6, "MB")
		b.ReportMetric(float64(c.Lists().All.Prefixes.Len()), "prefixes")
	})
	c = load(b, path)
	all := sourcesOf(c.Lists().All)
	b.Run("lookup", func(b *testing.B) {
		i, denied := 0, 0
		for b.Loop() {
			if i = (i + 7919) % len(some); all.Denies(some[i]) {
				denied++
			}
		}
		if denied != b.N {
			b.Fatalf("%d of %d denied", denied, b.N)
		}
	})
}
