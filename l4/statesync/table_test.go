package statesync

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/l4/datapath"
)

func TestTableIsReadAsItWasWritten(t *testing.T) {
	b := AppendTableHeader(nil)
	want := records()
	for i := range want {
		b = AppendTableRecord(b, &want[i])
	}
	var got []datapath.Record
	if err := ReadTable(b, func(r *datapath.Record) { got = append(got, *r) }); err != nil || len(got) != len(want) {
		t.Fatalf("%d records, %v", len(got), err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

// TestTablesOfOtherVersions has tables of an earlier version, of a later one, and none.
func TestTablesOfOtherVersions(t *testing.T) {
	r := records()[0]
	old := appendRecord(append([]byte(tableMagic), 1), &r, 1)
	n := 0
	if err := ReadTable(old, func(*datapath.Record) { n++ }); err != nil || n != 1 {
		t.Errorf("version 1: %d records, %v", n, err)
	}
	for _, text := range []string{"", tableMagic, "millrace", tableMagic + "\x02\x01"} {
		if err := ReadTable([]byte(text), func(*datapath.Record) { t.Error("a record") }); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{tableMagic + "\x03", tableMagic + "\x00"} {
		if err := ReadTable([]byte(text), func(*datapath.Record) { t.Error("a record") }); err == nil || !strings.Contains(err.Error(), "knows 1 to 2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzReadTable(f *testing.F) {
	b := AppendTableHeader(nil)
	f.Add(b)
	for _, r := range records() {
		b = AppendTableRecord(b, &r)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again := AppendTableHeader(nil)
		if ReadTable(b, func(r *datapath.Record) { again = AppendTableRecord(again, r) }) != nil {
			return
		}
		if err := ReadTable(again, func(*datapath.Record) {}); err != nil {
			t.Error(err)
		}
	})
}
