package control

import (
	"io"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/l4/statesync"
)

// importBurst is the number of connections that ImportTable enters at once.
const importBurst = 256

// WriteTable writes all connections that both sides of have been seen, for ImportTable of a process that replaces this one, and returns
// how many. on is that of Connections. Half-open connections are not written: their SYN is sent again.
func WriteTable(g *Gateway, now clock.Time, on func(loop int, f func()) bool, w io.Writer) (n int, err error) {
	t := &syncTable{g: g, now: func() clock.Time { return now }, on: on}
	b := statesync.AppendTableHeader(nil)
	for at := int64(0); at >= 0 && err == nil; {
		at = t.Page(at, func(r *datapath.Record) { b, n = statesync.AppendTableRecord(b, r), n+1 })
		_, err = w.Write(b)
		b = b[:0]
	}
	return n, err
}

// ImportTable enters the connections that WriteTable has written in the tables of the loops, which do not run yet. It returns how many
// were entered, and the others by the reason, as in the metrics of state sync.
func ImportTable(g *Gateway, now clock.Time, table []byte) (entered int, others map[string]int, err error) {
	t := &syncTable{
		g: g, now: func() clock.Time { return now }, on: func(_ int, f func()) bool { f(); return true },
		byLoop: make([][]datapath.ConnCopy, len(g.handlers)),
	}
	var list []datapath.Record
	err = statesync.ReadTable(table, func(r *datapath.Record) {
		if list = append(list, *r); len(list) == importBurst {
			t.Import(list)
			list = list[:0]
		}
	})
	t.Import(list)
	others = map[string]int{}
	for i, name := range outcomeNames {
		n := int(t.outcomes[i].Load())
		if i == datapath.RecordEntered || i == datapath.RecordUpdated {
			entered += n
		} else if n > 0 {
			others[name] = n
		}
	}
	return entered, others, err
}
