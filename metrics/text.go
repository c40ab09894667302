package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// ErrSeries reports a source that wrote a wrong series: twice the same, a name or a label that Prometheus
// rejects, or one name for two kinds of metric.
var ErrSeries = errors.New("metrics: a source wrote a wrong series")

// rows are the series of one metric that are computed while they are read.
type rows struct {
	head Series // name, help and kind
	each iter.Seq2[[]Label, float64]
}

// Rows writes a metric with very many series. Each yields the labels of a series and its value; a scrape
// that streams (WriteText) calls it while it sends and keeps nothing. Each may be called after the source has
// returned, may keep the labels for its next series, and must hold no lock while it yields: the reader of a
// scrape may be slow.
func (w *Writer) Rows(kind Kind, name, help string, each iter.Seq2[[]Label, float64]) {
	w.rows = append(w.rows, rows{Series{Name: name, Help: help, Kind: kind}, each})
}

// all yields the series, with a label slice that the next one overwrites.
func (r *rows) all(yield func(*Series) bool) {
	s := r.head
	for labels, v := range r.each {
		s.Labels = append(s.Labels[:0], labels...)
		slices.SortFunc(s.Labels, func(a, b Label) int { return cmp.Compare(a.Name, b.Name) })
		if s.Value = v; !yield(&s) {
			return
		}
	}
}

// family is all series of one name.
type family struct {
	head   *Series
	series []*Series
	rows   []*rows
}

// families groups what was written by name, in the order of the names.
func (w *Writer) families() ([]*family, error) {
	of := map[string]*family{}
	get := func(s *Series) (*family, error) {
		f := of[s.Name]
		if f == nil {
			f = &family{head: s}
			of[s.Name] = f
		}
		if f.head.Kind != s.Kind || f.head.Help != s.Help {
			return nil, fmt.Errorf("%w: %s has two kinds or two help texts", ErrSeries, s.Name)
		}
		return f, nil
	}
	for i := range w.series {
		f, err := get(&w.series[i])
		if err != nil {
			return nil, err
		}
		f.series = append(f.series, &w.series[i])
	}
	for i := range w.rows {
		f, err := get(&w.rows[i].head)
		if err != nil {
			return nil, err
		}
		f.rows = append(f.rows, &w.rows[i])
	}
	list := make([]*family, 0, len(of))
	for _, f := range of {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b *family) int { return cmp.Compare(a.head.Name, b.head.Name) })
	return list, nil
}

// WriteText calls every source and writes all series to out in the Prometheus text format (version 0.0.4), in the
// order of their names. It keeps a hash of each series of one name, and no series of Rows. The error wraps
// ErrSeries, or is that of out; what was written before it is not a whole exposition.
func (r *Registry) WriteText(out io.Writer, sel Selection) error {
	families, err := r.gather(sel).families()
	if err != nil {
		return err
	}
	t := textWriter{out: out, seed: maphash.MakeSeed()}
	for _, f := range families {
		if err := t.write(f); err != nil {
			return err
		}
	}
	return nil
}

// textWriter writes families to out.
type textWriter struct {
	out  io.Writer
	seed maphash.Seed
	seen map[uint64]struct{} // hashes of the series of this family
	line []byte
}

// kindNames are the types of the text format.
var kindNames = map[Kind]string{CounterKind: "counter", GaugeKind: "gauge", HistogramKind: "histogram"}

// helpEscape is the escaping of help texts, which differs from that of label values.
var helpEscape = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

func (t *textWriter) write(f *family) error {
	t.seen = map[uint64]struct{}{}
	if !validName(f.head.Name) {
		return fmt.Errorf("%w: the name %q", ErrSeries, f.head.Name)
	}
	name := f.head.Name
	if _, err := fmt.Fprintf(t.out, "# HELP %s %s\n# TYPE %s %s\n", name, helpEscape.Replace(f.head.Help), name, kindNames[f.head.Kind]); err != nil {
		return err
	}
	for _, s := range f.series {
		if err := t.series(s); err != nil {
			return err
		}
	}
	for _, r := range f.rows {
		var failed error
		r.all(func(s *Series) bool {
			failed = t.series(s)
			return failed == nil
		})
		if failed != nil {
			return failed
		}
	}
	return nil
}

func (t *textWriter) series(s *Series) error {
	for _, l := range s.Labels {
		if !validName(l.Name) || strings.ContainsRune(l.Name, ':') || !utf8.ValidString(l.Value) {
			return fmt.Errorf("%w: %s with the label %q=%q", ErrSeries, s.Name, l.Name, l.Value)
		}
	}
	t.line = s.appendID(t.line[:0], "")
	hash := maphash.Bytes(t.seed, t.line)
	if _, twice := t.seen[hash]; twice {
		return fmt.Errorf("%w: %s was written twice", ErrSeries, t.line)
	}
	t.seen[hash] = struct{}{}
	t.line = s.appendText(t.line[:0])
	_, err := t.out.Write(t.line)
	return err
}

// validName reports whether s is the name of a metric: letters, digits, underscores and colons, no digit first.
func validName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c == ':' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
