package metrics

import (
	"strconv"
	"strings"
)

// Kind is how a scraper treats the values of a metric.
type Kind uint8

const (
	CounterKind   Kind = iota // only grows, but for restarts
	GaugeKind                 // goes up and down
	HistogramKind             // cumulative buckets
)

// Series is one metric with one set of labels, and its value at the time of a scrape.
type Series struct {
	Name, Help string
	Kind       Kind
	Labels     []Label // sorted by name

	Value float64 // of a counter or gauge

	Buckets []Bucket // of a histogram, in the order of UpTo; the one that ends at infinity is Count
	Count   uint64   // values recorded
	Sum     float64  // of the values, in the unit of the name
}

// Bucket counts the values of a histogram that are at most UpTo.
type Bucket struct {
	UpTo  float64
	Count uint64
}

// id renders the name and the labels as in the Prometheus text format; suffix follows the name.
func (s *Series) id(suffix string, extra ...Label) string {
	var b strings.Builder
	b.WriteString(s.Name + suffix)
	sep := "{"
	for _, labels := range [][]Label{s.Labels, extra} {
		for _, l := range labels {
			b.WriteString(sep + l.Name + `="` + escape.Replace(l.Value) + `"`)
			sep = ","
		}
	}
	if sep == "," {
		b.WriteByte('}')
	}
	return b.String()
}

// escape is the escaping of label values in the text format.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// String renders the series in the Prometheus text format, a line for each value, without the lines
// of help and type.
func (s Series) String() string {
	if s.Kind != HistogramKind {
		return s.id("") + " " + number(s.Value) + "\n"
	}
	var b strings.Builder
	for _, bucket := range s.Buckets {
		b.WriteString(s.id("_bucket", Label{"le", number(bucket.UpTo)}) + " " + strconv.FormatUint(bucket.Count, 10) + "\n")
	}
	count := strconv.FormatUint(s.Count, 10)
	b.WriteString(s.id("_bucket", Label{"le", "+Inf"}) + " " + count + "\n")
	b.WriteString(s.id("_sum") + " " + number(s.Sum) + "\n")
	b.WriteString(s.id("_count") + " " + count + "\n")
	return b.String()
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
