package statesync

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/l4/datapath"
)

// A table that a process leaves to the one that replaces it: tableMagic, the version of the records, and the records of all connections.
// Both are programs of one machine, and perhaps of different versions: a reader knows all versions up to its own.

const (
	tableMagic   = "millrace table "
	tableVersion = 2 // of records
)

// AppendTableHeader appends the beginning of a table, and AppendTableRecord a connection.
func AppendTableHeader(b []byte) []byte { return append(append(b, tableMagic...), tableVersion) }

// AppendTableRecord appends a connection.
func AppendTableRecord(b []byte, r *datapath.Record) []byte { return appendRecord(b, r, tableVersion) }

// ReadTable calls yield with each connection of a table. Those before an error have been read.
func ReadTable(b []byte, yield func(r *datapath.Record)) error {
	b, ok := bytes.CutPrefix(b, []byte(tableMagic))
	if !ok || len(b) == 0 {
		return fmt.Errorf("the table of connections: %w", ErrFormat)
	}
	version := b[0]
	if version < 1 || version > tableVersion {
		return fmt.Errorf("the table of connections has version %d, and this program knows 1 to %d", version, tableVersion)
	}
	for b = b[1:]; len(b) > 0; {
		r, rest, err := parseRecord(b, version)
		if err != nil {
			return fmt.Errorf("the table of connections: %w", err)
		}
		yield(&r)
		b = rest
	}
	return nil
}
