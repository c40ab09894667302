package control

import (
	"bytes"
	"fmt"
	"testing"
)

// left returns the table that a gateway leaves, and how many connections it has.
func (w *world) left() ([]byte, int) {
	w.t.Helper()
	var b bytes.Buffer
	n, err := WriteTable(w.g, w.now, func(_ int, f func()) bool { f(); return true }, &b)
	if err != nil {
		w.t.Fatal(err)
	}
	return b.Bytes(), n
}

// TestConnectionsGoOnAtTheNextProcess opens connections, half-open ones too, and has another gateway take the table: established ones go
// on from their source ports, in both directions, and these ports are not given to others.
func TestConnectionsGoOnAtTheNextProcess(t *testing.T) {
	for _, keys := range []string{"", "source: client"} {
		a, b := newWorld(t, fill(keys)), newWorld(t, fill(keys))
		a.expect(0, client("198.18.0.9:40001", web, "S").bytes(), 1)
		before := map[string]flow{}
		for i := range 700 { // more than are entered at once
			from := fmt.Sprintf("198.18.0.9:%d", 20000+i)
			before[from] = flowOf(a.connect(from))
		}
		table, n := a.left()
		if n != len(before) {
			t.Errorf("%q: %d connections were written, want %d", keys, n, len(before))
		}
		entered, others, err := ImportTable(b.g, b.now, table)
		if entered != len(before) || len(others) > 0 || err != nil {
			t.Fatalf("%q: %d were entered, %v, %v", keys, entered, others, err)
		}
		for from, to := range before {
			p := b.expect(0, client(from, web, "PA").bytes(), 1)
			if got := flowOf(p); got.src != to.src || got.dst != to.dst {
				t.Fatalf("%q: from %v to %v, before from %v to %v", keys, got.src, got.dst, to.src, to.dst)
			}
			if back := flowOf(b.expect(1, answer(p, "PA").bytes(), 0)); back.dst.String() != from || back.src.String() != web {
				t.Fatalf("%q: the reply goes from %v to %v", keys, back.src, back.dst)
			}
		}
		fresh := flowOf(b.connect("198.18.0.9:50000"))
		for from, to := range before {
			if fresh.src == to.src {
				t.Errorf("%q: a new connection has the source port of %s", keys, from)
			}
		}
		b.audit()
	}
}

// TestATableThatIsCut enters the connections before the cut.
func TestATableThatIsCut(t *testing.T) {
	a, b := newWorld(t, fill("")), newWorld(t, fill(""))
	for i := range 10 {
		a.connect(fmt.Sprintf("198.18.0.9:%d", 20000+i))
	}
	table, _ := a.left()
	if entered, _, err := ImportTable(b.g, b.now, table[:len(table)-1]); entered != 9 || err == nil {
		t.Errorf("%d were entered, %v", entered, err)
	}
	b.audit()
}
