package metrics

import "strconv"

// Kind selects how a scraper treats the values of a metric.
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

// id renders the name and the labels as in the Prometheus text format.
func (s *Series) id() string { return string(s.appendID(nil, "")) }

// appendID appends the name and the labels as in the Prometheus text format; suffix follows the name.
func (s *Series) appendID(b []byte, suffix string, extra ...Label) []byte {
	b = append(append(b, s.Name...), suffix...)
	sep := byte('{')
	for _, labels := range [...][]Label{s.Labels, extra} {
		for i := range labels {
			b = append(append(append(b, sep), labels[i].Name...), `="`...)
			b = append(appendEscaped(b, labels[i].Value), '"')
			sep = ','
		}
	}
	if sep == ',' {
		b = append(b, '}')
	}
	return b
}

// appendEscaped appends a label value with the escaping of the text format.
func appendEscaped(b []byte, s string) []byte {
	for _, c := range []byte(s) {
		switch c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, c)
		}
	}
	return b
}

// String renders the series in the Prometheus text format, a line for each value, without the lines
// of help and type.
func (s Series) String() string { return string(s.appendText(nil)) }

// appendText appends what String returns.
func (s *Series) appendText(b []byte) []byte {
	if s.Kind != HistogramKind {
		return append(appendNumber(append(s.appendID(b, ""), ' '), s.Value), '\n')
	}
	for _, bucket := range s.Buckets {
		b = s.appendID(b, "_bucket", Label{"le", string(appendNumber(nil, bucket.UpTo))})
		b = append(strconv.AppendUint(append(b, ' '), bucket.Count, 10), '\n')
	}
	b = s.appendID(b, "_bucket", Label{"le", "+Inf"})
	b = append(strconv.AppendUint(append(b, ' '), s.Count, 10), '\n')
	b = append(appendNumber(append(s.appendID(b, "_sum"), ' '), s.Sum), '\n')
	return append(strconv.AppendUint(append(s.appendID(b, "_count"), ' '), s.Count, 10), '\n')
}

func appendNumber(b []byte, v float64) []byte { return strconv.AppendFloat(b, v, 'g', -1, 64) }
