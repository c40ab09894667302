package statesync

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/l4/datapath"
)

var recordTables = flag.Bool("record", false, "record the golden tables of versions that have none")

// TestTablesOfReleasedPrograms reads tables as programs of each version of the records have left them to the process that replaced them. The
// files do not change: an upgrade from a released program must find its connections. Another version gets files of its own.
func TestTablesOfReleasedPrograms(t *testing.T) {
	for version := byte(1); version <= tableVersion; version++ {
		name := filepath.Join("testdata", fmt.Sprintf("table-v%d", version))
		if _, err := os.Stat(name + ".bin"); *recordTables && os.IsNotExist(err) {
			b := append([]byte(tableMagic), version)
			known := records()[0]
			known.Windows = datapath.Windows{Known: true, Loose: true, Scales: 0x72, Sides: [2]datapath.Window{{End: 1, Limit: 2, Most: 3, Acked: 4}, {End: 1 << 31, Limit: 1<<31 + 1, Most: 65535, Acked: 1<<32 - 1}}}
			for _, r := range append(records(), known) {
				b = appendRecord(b, &r, version)
			}
			text, err := tableText(b)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name+".bin", b, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name+".txt", []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(name + ".bin")
		if err != nil {
			t.Fatalf("version %d has no golden table: record one with -record (%v)", version, err)
		}
		want, err := os.ReadFile(name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		got, err := tableText(b)
		if err != nil || got != string(want) || strings.Count(got, "\n") < 4 {
			t.Errorf("version %d: %v\n%swant\n%s", version, err, got, want)
		}
	}
}

// tableText has a line for each connection of a table, with what all versions have.
func tableText(b []byte) (string, error) {
	var s strings.Builder
	err := ReadTable(b, func(r *datapath.Record) {
		fmt.Fprintf(&s, "%d %v -> %v -> %v by %v, state %d, FINs %d, idle %v, windows %v %v\n", r.Proto, r.Client, r.VIP, r.Target, r.Source, r.State, r.FINs, r.Idle,
			r.Windows.Known, r.Windows)
	})
	return s.String(), err
}
