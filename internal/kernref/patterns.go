package kernref

import (
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/litref"
)

// Patterns are literals that are not compiled.
type Patterns []literal.Pattern

// Scan finds what literal.Set.Scan finds.
func (p Patterns) Scan(before, text []byte, limit int, out []literal.Occurrence) []literal.Occurrence {
	return litref.Scan(p, before, text, limit, out)
}
