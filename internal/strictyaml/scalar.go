package strictyaml

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/suggest"
	"go.yaml.in/yaml/v3"
)

// Choice reads one of the allowed words.
func Choice[S ~string](d *Decoder, n *yaml.Node, what string, to *S, allowed ...S) {
	if n.Kind != yaml.ScalarNode || !slices.Contains(allowed, S(n.Value)) {
		words := make([]string, len(allowed))
		for i, w := range allowed {
			words[i] = string(w)
		}
		d.Fail(n, d.Hint(n.Value, words), "%s cannot be %s", what, Kind(n))
		return
	}
	*to = S(n.Value)
}

// Integer reads a whole number from least to most, which N can hold.
func Integer[N ~int | ~int64 | ~uint16 | ~uint32](d *Decoder, n *yaml.Node, what string, to *N, least, most int64) bool {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		d.Fail(n, "", "%s must be a whole number, not %s", what, Kind(n))
		return false
	}
	if v < least || v > most {
		d.Fail(n, "", "%s is %d; it must lie between %d and %d", what, v, least, most)
		return false
	}
	*to = N(v)
	return true
}

// Duration reads a length of time from least to most.
func (d *Decoder) Duration(n *yaml.Node, what string, to *time.Duration, least, most time.Duration) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!int" {
		d.Fail(n, fmt.Sprintf("write %ss for seconds", n.Value), "%s has no unit", what)
		return
	}
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.Fail(n, "such as 500ms, 30s or 2h", "%s must be a length of time, not %s", what, Kind(n))
		return
	}
	if v < least || v > most {
		d.Fail(n, "", "%s is %v; it must lie between %v and %v", what, v, least, most)
		return
	}
	*to = v
}

// Hint lists the allowed words, after the one that word was probably meant to be.
func (d *Decoder) Hint(word string, allowed []string) string {
	best := suggest.Nearest(word, len(word)/3, allowed...)
	if best == "" {
		return Allowed(allowed)
	}
	return fmt.Sprintf("did you mean %q? %s", best, Allowed(allowed))
}

// Allowed is the hint that lists what could stand there.
func Allowed(words []string) string { return "allowed: " + strings.Join(words, ", ") }
