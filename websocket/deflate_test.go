package websocket

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
)

// jsonLike returns content that compresses as messages do, of about n bytes.
func jsonLike(n int) (b []byte) {
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, `{"id":%d,"name":"user %d","price":%d},`, i*7919%10007, i%13, i*31%977)
	}
	return b
}

// exchange sends a message from one machine to another, which checks it.
func exchange(t testing.TB, from, to *Machine, content []byte) (wire int) {
	t.Helper()
	b, err := from.AppendMessage(nil, Binary, content)
	if err != nil {
		t.Fatal(err)
	}
	got, err := receive(t, to, b, whole)
	if err != nil || len(got) != 1 || got[0].payload != string(content) {
		t.Fatalf("%d items, %v", len(got), err)
	}
	return len(b)
}

// TestMemoryOfCompression bounds the memory of a connection that has exchanged compressed messages. docs/websocket.md
// has the figures.
func TestMemoryOfCompression(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector changes what is allocated")
	}
	none := Deflate{Enabled: true, ServerNoTakeover: true, ClientNoTakeover: true}
	for _, c := range []struct {
		name       string
		deflate    Deflate
		idle, used int64 // KiB of a pair of machines
	}{
		{"no compression", Deflate{}, 2, 2},
		{"takeover", Deflate{Enabled: true}, 2, 2000},
		{"takeover, level 9", Deflate{Enabled: true, Level: 9}, 2, 3500},
		{"compact", Deflate{Enabled: true, Compact: true}, 2, 2 * 90},
		{"compact, 9 bits", Deflate{Enabled: true, Compact: true, ServerWindowBits: 9, ClientWindowBits: 9}, 2, 2 * 8},
		{"no takeover", none, 2, 2 * 70},
	} {
		const pairs = 10
		content := jsonLike(100_000)
		var ms [pairs][2]*Machine
		heapInUse() // the pools of the case before
		before := heapInUse()
		for i := range ms {
			ms[i] = [2]*Machine{NewMachine(Client, MachineOptions{Deflate: c.deflate}), NewMachine(Server, MachineOptions{Deflate: c.deflate})}
		}
		idle := (heapInUse() - before) / pairs
		for i := range ms {
			exchange(t, ms[i][0], ms[i][1], content)
			exchange(t, ms[i][1], ms[i][0], content)
		}
		runtime.GC() // empties the pools with the next
		used := (heapInUse() - before) / pairs
		t.Logf("%s: %d bytes of one end, %d after messages", c.name, idle/2, used/2)
		if idle > c.idle<<10 || used > c.used<<10 {
			t.Errorf("%s: a pair has %d bytes, then %d, at most %d and %d KiB are permitted", c.name, idle, used, c.idle, c.used)
		}
		runtime.KeepAlive(ms)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCompactKeepsTheWindow: a compact connection compresses by the messages before as another does, with every
// window, also when connections take turns with what compresses.
func TestCompactKeepsTheWindow(t *testing.T) {
	content := jsonLike(3000)
	for bits := 8; bits <= 15; bits++ {
		d := Deflate{Enabled: true, Compact: true, ServerWindowBits: bits, ClientWindowBits: bits}
		var pairs [3][2]*Machine
		for i := range pairs {
			pairs[i] = [2]*Machine{NewMachine(Client, MachineOptions{Deflate: d}), NewMachine(Server, MachineOptions{Deflate: d})}
		}
		first, second := 0, 0
		for round := range 40 {
			for i, p := range pairs {
				message := append(fmt.Appendf(nil, "%d", i), content...)
				n := exchange(t, p[0], p[1], message)
				exchange(t, p[1], p[0], bytes.Repeat(message, round%3))
				if round == 0 {
					first = n
				}
				second = n
			}
		}
		if bits >= 13 && second*5 > first {
			t.Errorf("%d bits: %d bytes, then %d: the window is not used", bits, first, second)
		}
	}
}

// TestFragmentsKeepTheirCompressor: a message in fragments goes on where it was, whatever other connections send
// between.
func TestFragmentsKeepTheirCompressor(t *testing.T) {
	for _, d := range []Deflate{{Enabled: true, Compact: true}, {Enabled: true, ClientNoTakeover: true}} {
		a, b := NewMachine(Client, MachineOptions{Deflate: d}), NewMachine(Client, MachineOptions{Deflate: d})
		server := NewMachine(Server, MachineOptions{Deflate: d})
		content := jsonLike(5000)
		var wire []byte
		for i := 0; i < len(content); i += 1000 {
			end := min(i+1000, len(content))
			wire, _ = a.AppendFragment(wire, Binary, content[i:end], end == len(content))
			_, _ = b.AppendMessage(nil, Binary, content[:i+100])
		}
		got, err := receive(t, server, wire, whole)
		if err != nil || len(got) != 1 || got[0].payload != string(content) {
			t.Errorf("%+v: %d items, %v", d, len(got), err)
		}
	}
}
