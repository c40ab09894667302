package control

import (
	ctls "crypto/tls"
	"net/http"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/tls"
	"github.com/millrace/millrace/tls/acme"
)

// newDemand returns what obtains the certificates that clients of a listener ask for, nil for none.
func newDemand(cfg *config.Config, a *authority, c *config.OnDemand, store *tls.Store) (*acme.OnDemand, error) {
	if c == nil {
		return nil, nil
	}
	o := acme.DemandOptions{
		Store: store, Names: c.Names, Suffixes: c.Suffixes, Ask: c.Ask, OrdersPerHour: c.OrdersPerHour, Certificates: c.Certificates,
	}
	if len(c.CAFiles) > 0 {
		roots, err := tls.LoadRoots(beside(cfg, c.CAFiles)...)
		if err != nil {
			return nil, err
		}
		o.Client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &ctls.Config{RootCAs: roots.Pool(), MinVersion: ctls.VersionTLS12},
		}}
	}
	return a.NewOnDemand(o)
}

// demandOf returns the part for handshakes.
func demandOf(t *servedTLS) *proxy.Demand {
	if t.demand == nil {
		return nil
	}
	return &proxy.Demand{Want: t.demand.Want, Wait: t.settings.ACME.OnDemand.Wait}
}

// handshakeTime bounds a handshake of HTTP/3, with the wait for a certificate.
func handshakeTime(l *config.Listener) time.Duration {
	t := l.Timeouts.Handshake
	if l.TLS != nil && l.TLS.ACME != nil && l.TLS.ACME.OnDemand != nil {
		t += l.TLS.ACME.OnDemand.Wait
	}
	return t
}

// demandsOf returns those whose certificates the account of a folder renews.
func demandsOf(n *plan, dir string) (list []*acme.OnDemand) {
	for _, t := range n.served {
		if t.demand != nil && n.cfg.Beside(t.settings.ACME.Dir) == dir {
			list = append(list, t.demand)
		}
	}
	return list
}

// closeDemands ends those that are not kept.
func closeDemands(all, kept map[string]*servedTLS) {
	for name, t := range all {
		if t.demand != nil && (kept[name] == nil || kept[name].demand != t.demand) {
			t.demand.Close()
		}
	}
}

// DemandStatus counts certificates on demand of a listener.
type DemandStatus struct {
	Certificates int    `json:"certificates"` // that are held
	Waiting      int    `json:"waiting"`      // handshakes
	Asked        uint64 `json:"asked"`        // requests to `ask`
	Obtained     uint64 `json:"obtained"`
	Failed       uint64 `json:"failed"`  // orders, and requests to `ask`
	Refused      uint64 `json:"refused"` // handshakes whose name is not permitted
	Limited      uint64 `json:"limited"` // handshakes beyond a bound
}

// demandStatus returns the state of a listener's, nil for none.
func demandStatus(t *servedTLS) *DemandStatus {
	if t == nil || t.demand == nil {
		return nil
	}
	st := t.demand.Stats()
	return &DemandStatus{st.Certificates, st.Waiting, st.Asked, st.Obtained, st.Failed, st.Refused, st.Limited}
}

// write writes the counters.
func (d *DemandStatus) write(w *metrics.Writer, listener string) {
	of := metrics.Label{Name: "listener", Value: listener}
	w.Gauge("millrace_http_demand_certificates", "Certificates on demand that a listener holds.", float64(d.Certificates), of)
	w.Gauge("millrace_http_demand_waiting", "Handshakes that wait for a certificate.", float64(d.Waiting), of)
	w.Counter("millrace_http_demand_asked_total", "Requests to the URL that permits names.", d.Asked, of)
	w.Counter("millrace_http_demand_obtained_total", "Certificates on demand that were obtained, or found in the folder.", d.Obtained, of)
	w.Counter("millrace_http_demand_failed_total", "Orders and requests to the URL that have failed.", d.Failed, of)
	w.Counter("millrace_http_demand_refused_total", "Handshakes whose name is not permitted.", d.Refused, of)
	w.Counter("millrace_http_demand_limited_total", "Handshakes for a name that got no certificate since a bound was reached.", d.Limited, of)
}
