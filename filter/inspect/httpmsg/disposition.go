package httpmsg

import (
	"bytes"
	"slices"

	"github.com/millrace/millrace/filter/inspect/ascii"
)

// namesOf returns the names of a file that a field Content-Disposition has.
func namesOf(disposition []byte) [][]byte {
	return ascii.AppendReadings(nil, disposition, "filename")
}

func contains(list [][]byte, b []byte) bool {
	return slices.ContainsFunc(list, func(o []byte) bool { return bytes.Equal(o, b) })
}
