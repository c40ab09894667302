package strictyaml

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/suggest"
	"go.yaml.in/yaml/v3"
)

// Choice reads one of the allowed words.
func Choice[S ~string](d *Decoder, n *yaml.Node, what string, to *S, allowed ...S) {
	words := make([]string, len(allowed))
	for i, w := range allowed {
		words[i] = string(w)
	}
	if d.Takes(choiceSchema(words, defaultOf(*to))) {
		return
	}
	word := n.Value
	if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
		word = truthWord(word, words)
	}
	if n.Kind != yaml.ScalarNode || !slices.Contains(words, word) {
		d.Fail(n, d.Hint(n.Value, words), "%s cannot be %s", what, Kind(n))
		return
	}
	*to = S(word)
}

// truths are words of YAML 1.1 for truth values: its dumpers write false where a program has set the word off.
var truths = map[string][]string{"true": {"on", "yes"}, "false": {"off", "no"}}

// truthWord returns the word that a truth value stands for among the allowed ones, else the value.
func truthWord(value string, words []string) string {
	for _, w := range truths[value] {
		if slices.Contains(words, w) {
			return w
		}
	}
	return value
}

// choiceSchema describes one of the words, or a truth value that stands for one.
func choiceSchema(words []string, def any) Schema {
	s := Schema{Type: "string", Enum: anyOf(words), Default: def}
	for _, v := range []bool{false, true} {
		if value := strconv.FormatBool(v); truthWord(value, words) != value {
			s.Type, s.Enum = "", append(s.Enum, v)
		}
	}
	return s
}

// Integer reads a whole number from least to most, which N can hold.
func Integer[N ~int | ~int64 | ~uint16 | ~uint32](d *Decoder, n *yaml.Node, what string, to *N, least, most int64) bool {
	if d.describing {
		s := Schema{Type: "integer", Minimum: &least, Maximum: &most}
		if v := int64(*to); v >= least && v <= most {
			s.Default = v
		}
		return !d.Takes(s)
	}
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		d.Fail(n, bytesHint(n.Value), "%s must be a whole number, not %s", what, Kind(n))
		return false
	}
	if v < least || v > most {
		d.Fail(n, "", "%s is %d; it must lie between %d and %d", what, v, least, most)
		return false
	}
	*to = N(v)
	return true
}

// sizeForm matches a size with a unit, as other programs take it: 10m, 64kB, 2 GiB.
var sizeForm = regexp.MustCompile(`^([0-9]{1,6}) ?([kKmMgG])(?:i?[bB])?$`)

// bytesHint returns what a size with a unit is in bytes, the unit of all sizes here; "" for other texts. The units are powers of 1024, as in
// nginx and HAProxy.
func bytesHint(text string) string {
	m := sizeForm.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	v, _ := strconv.ParseInt(m[1], 10, 64) // six digits
	shift := map[string]int{"k": 10, "m": 20, "g": 30}[strings.ToLower(m[2])]
	return fmt.Sprintf("without a unit: of bytes %d", v<<shift)
}

// PowerOfTwo reads a power of two from least to most, which are powers of two themselves.
func PowerOfTwo(d *Decoder, n *yaml.Node, what string, to *int, least, most int) bool {
	if d.describing {
		var values []int
		for v := least; v <= most; v *= 2 {
			values = append(values, v)
		}
		return !d.Takes(Schema{Type: "integer", Enum: anyOf(values), Default: *to})
	}
	v := *to
	if !Integer(d, n, what, &v, int64(least), int64(most)) {
		return false
	}
	if v&(v-1) != 0 {
		below := 1 << (bits.Len(uint(v)) - 1)
		d.Fail(n, fmt.Sprintf("%d or %d", below, 2*below), "%s is %d; it must be a power of two", what, v)
		return false
	}
	*to = v
	return true
}

// durationForm matches the input of time.ParseDuration.
const durationForm = `^(0|([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+)$`

// defaultOf returns the default of a string for a Schema; "" is none.
func defaultOf[S ~string](s S) any {
	if s == "" {
		return nil
	}
	return string(s)
}

// Truth reads true or false.
func (d *Decoder) Truth(n *yaml.Node, what string, to *bool) {
	if d.Takes(Schema{Type: "boolean", Default: *to}) {
		return
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
		d.Fail(n, "allowed: true, false", "%s must be true or false, not %s", what, Kind(n))
		return
	}
	*to = n.Value == "true"
}

// Text reads a string that is not empty. Numbers and truth values are rejected unless quoted.
func (d *Decoder) Text(n *yaml.Node, what string, to *string) bool {
	if d.Takes(Schema{Type: "string", Title: "text", Default: defaultOf(*to)}) {
		return false
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value == "" {
		d.Fail(n, "", "%s must be a string, not %s", what, Kind(n))
		return false
	}
	*to = n.Value
	return true
}

// Duration reads a length of time from least to most.
func (d *Decoder) Duration(n *yaml.Node, what string, to *time.Duration, least, most time.Duration) {
	if d.describing {
		s := Schema{Type: "string", Title: fmt.Sprintf("duration, %v to %v", least, most), Pattern: durationForm}
		if *to >= least && *to <= most {
			s.Default = to.String()
		}
		d.Takes(s)
		return
	}
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
