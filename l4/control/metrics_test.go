package control

import (
	"io"
	"strings"
	"testing"

	"github.com/millrace/millrace/metrics"
)

func (w *world) scrape() string {
	reg := metrics.NewRegistry(metrics.Build{Version: "test"})
	reg.Add(w.g.WriteMetrics)
	series, err := reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	var text strings.Builder
	for _, s := range series {
		text.WriteString(s.String())
	}
	return text.String()
}

func TestMetricsCountWhatHappened(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11))
	out := w.connect(host)
	w.expect(1, answer(out, "A").bytes(), 0)
	w.send(0, client(host, "198.18.1.1:81", "S").bytes())
	w.send(0, client("198.18.0.9:5", web, "A").bytes())
	w.setHealth("b11", false)
	w.send(0, client(host, web, "A").bytes())
	body := w.scrape()
	for _, want := range []string{
		`millrace_l4_connections 1`,
		`millrace_l4_table_size_connections 1024`,
		`millrace_l4_forwarded_packets_total 6`,
		`millrace_drop_packets_total{reason="no_service",stage="l4"} 0`,
		`millrace_l4_answers_total{kind="closed_port"} 1`,
		`millrace_drop_packets_total{reason="no_flow",stage="l4"} 0`,
		`millrace_l4_answers_total{kind="reset_unknown"} 1`,
		`millrace_drop_packets_total{reason="ttl",stage="l4"} 0`,
		`millrace_l4_service_drop_packets_total{reason="no_backend",service="web"} 1`,
		`millrace_l4_backend_healthy{address="198.18.2.11:80",backend="b11",service="web"} 0`,
		`millrace_l4_backend_connections_opened_total{address="198.18.2.11:80",backend="b11",service="web"} 1`,
		`millrace_l4_backend_packets_total{address="198.18.2.11:80",backend="b11",direction="to",service="web"} 2`,
		`millrace_l4_backend_packets_total{address="198.18.2.11:80",backend="b11",direction="from",service="web"} 2`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}

// What clients send must not make new series.
func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	w := newWorld(t, fill(""))
	few := strings.Count(w.scrape(), "\n")
	for i := range 200 {
		w.send(0, client(host, "198.18.1.1:80", []string{"S", "A", "R"}[i%3]).bytes())
		c := client("198.18.3.4:7", dns, "")
		c.ttl = uint8(i)
		w.send(0, c.bytes())
	}
	if many := strings.Count(w.scrape(), "\n"); many > few+20 {
		t.Errorf("%d series became %d", few, many)
	}
}

// scrapeOf is scrape of a selection: the series and the text.
func (w *world) scrapeOf(sel metrics.Selection) (map[string]float64, string) {
	w.t.Helper()
	reg := metrics.NewRegistry(metrics.Build{})
	reg.Add(w.g.WriteMetrics)
	list, err := reg.GatherFor(sel)
	if err != nil {
		w.t.Fatal(err)
	}
	var text strings.Builder
	values := map[string]float64{}
	for _, s := range list {
		line := s.String()
		text.WriteString(line)
		values[line[:strings.LastIndexByte(line, ' ')]] = s.Value
	}
	return values, text.String()
}

// TestMetricsOf10000ServicesAreShort compares what a scrape gets of 40 000 backends with all there is: it is
// short, says what it leaves out, and sums that up.
func TestMetricsOf10000ServicesAreShort(t *testing.T) {
	w, c := openMany(t, 10_000)
	for i := 0; i < 10_000; i += 99 { // some connections, of listed services and others
		w.expect(0, client("198.18.0.9:40000", c.Services[i].Addresses[0].String(), "S").bytes(), 1)
	}
	w.after(0)
	short, text := w.scrapeOf(metrics.Selection{})
	all, long := w.scrapeOf(metrics.Selection{All: true})
	t.Logf("%d series and %d bytes by default, %d and %d in all", len(short), len(text), len(all), len(long))
	if len(text) > 2_000_000 {
		t.Errorf("%d bytes", len(text))
	}
	const unlisted, opened = "millrace_l4_unlisted_backends", "millrace_l4_backend_connections_opened_total"
	if short[unlisted] != 40_000-maxListed || all[unlisted] != 0 {
		t.Errorf("%v and %v backends unlisted", short[unlisted], all[unlisted])
	}
	sum := func(m map[string]float64) (n float64) {
		for key, v := range m {
			if strings.HasPrefix(key, opened) {
				n += v
			}
		}
		return n
	}
	if a, b := sum(short), sum(all); a != b || b != 102 {
		t.Errorf("%v connections opened by default, %v in all, want 102", a, b)
	}
	if n := short[opened+`{address="",backend="_other",service="_other"}`]; n == 0 || n == 102 {
		t.Errorf("%v connections of those that are not listed", n)
	}
	one, _ := w.scrapeOf(metrics.Selection{Names: []string{"s9999"}})
	services := map[string]bool{}
	for key := range one {
		if _, after, ok := strings.Cut(key, `service="`); ok {
			services[after[:strings.IndexByte(after, '"')]] = true
		}
	}
	if len(services) != 1 || !services["s9999"] {
		t.Errorf("a scrape of one service has those of %v", services)
	}
	if got := one[`millrace_l4_backends{state="healthy"}`]; got != 40_000 {
		t.Errorf("%v healthy backends", got)
	}
}

func BenchmarkMetricsOf10000Services(b *testing.B) {
	w, _ := openMany(b, 10_000)
	for _, all := range []bool{false, true} {
		b.Run(map[bool]string{false: "default", true: "all"}[all], func(b *testing.B) {
			b.ReportAllocs()
			reg := metrics.NewRegistry(metrics.Build{})
			reg.Add(w.g.WriteMetrics)
			for b.Loop() {
				if err := reg.WriteText(io.Discard, metrics.Selection{All: all}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
