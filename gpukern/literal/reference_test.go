package literal

import "github.com/millrace/millrace/internal/litref"

// Reference is a set that is searched for without tables.
type Reference []Pattern

func (r Reference) Scan(tail, text []byte, limit int, out []Occurrence) []Occurrence {
	return litref.Scan(r, tail, text, limit, out)
}
