package socket

import (
	"reflect"
	"strings"
	"unicode"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
)

// Stats returns the counters of the transports, summed over the loops.
func (s *Stack) Stats() (t tcp.Stats, u udp.Stats) {
	_ = s.group.Each(func(_ clock.Time, h *host.Host) error {
		addFields(&t, h.TCP.Stats())
		addFields(&u, h.UDP.Stats())
		return nil
	})
	return t, u
}

// addFields adds the numbers in v, and in arrays in v, to those of sum.
func addFields[T tcp.Stats | udp.Stats](sum *T, v T) {
	to, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(v)
	for i := range to.NumField() {
		addValue(to.Field(i), from.Field(i))
	}
}

func addValue(to, from reflect.Value) {
	switch {
	case to.Kind() == reflect.Array:
		for i := range to.Len() {
			addValue(to.Index(i), from.Index(i))
		}
	case to.CanUint():
		to.SetUint(to.Uint() + from.Uint())
	default:
		to.SetInt(to.Int() + from.Int())
	}
}

// WriteMetrics writes the counters of the transports: millrace_tcp_retransmits_total for
// tcp.Stats.Retransmits, and so on. Unsigned fields only grow; signed ones are gauges.
func (s *Stack) WriteMetrics(w *metrics.Writer) {
	t, u := s.Stats()
	writeFields(w, "millrace_tcp_", "tcp.Stats.", reflect.ValueOf(t))
	writeFields(w, "millrace_udp_", "udp.Stats.", reflect.ValueOf(u))
}

func writeFields(w *metrics.Writer, prefix, help string, v reflect.Value) {
	for i := range v.NumField() {
		f, field := v.Field(i), v.Type().Field(i).Name
		name := prefix + SnakeCase(field)
		help := "Sum over the loops of " + help + field + "."
		switch {
		case f.Kind() == reflect.Array: // by verdict
			for k := range f.Len() {
				if why := packet.Verdict(k); why.Dropped() {
					w.Counter(name+"_total", help, f.Index(k).Uint(), metrics.Label{Name: "reason", Value: why.String()})
				}
			}
		case f.CanUint():
			w.Counter(name+"_total", help, f.Uint())
		default:
			w.Gauge(name, help, float64(f.Int()))
		}
	}
}

// SnakeCase writes the name of a field as metrics and JSON have it: BytesIn is bytes_in.
func SnakeCase(name string) string {
	var s strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			s.WriteByte('_')
		}
		s.WriteRune(unicode.ToLower(r))
	}
	return s.String()
}
