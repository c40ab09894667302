package gateway

import (
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
		`millrace_l4_forwarded_packets_total 4`,
		`millrace_drop_packets_total{reason="no_service",stage="l4"} 1`,
		`millrace_drop_packets_total{reason="no_flow",stage="l4"} 1`,
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
