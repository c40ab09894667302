package tls

import (
	"slices"
	"time"

	"github.com/millrace/millrace/metrics"
)

// listedCertificates is the number of certificates that a scrape lists that does not ask for all: those that expire first.
const listedCertificates = 100

// WriteMetrics writes when certificates and their OCSP responses end, and which could not be loaded again; it is a
// metrics.Source. Of more than 100 certificates it lists those that expire first, unless the scrape requests all,
// or for some by their ID. Times are in seconds since 1970; a certificate without a response has 0.
func (s *Store) WriteMetrics(w *metrics.Writer) {
	all := s.Status()
	failed := 0
	for i := range all {
		if all[i].Err != nil {
			failed++
		}
	}
	w.Gauge("millrace_tls_certificates", "Certificates in the store.", float64(len(all)))
	w.Gauge("millrace_tls_failed_certificates", "Certificates whose files could not be loaded again.", float64(failed))
	for i := range all {
		if wanted(&w.Selection, i, all[i].ID) {
			all[i].write(w)
		}
	}
}

// wanted reports whether a scrape lists the ith certificate.
func wanted(sel *metrics.Selection, i int, id string) bool {
	if sel.Names == nil {
		return sel.All || i < listedCertificates
	}
	return slices.Contains(sel.Names, id)
}

func (st *CertificateStatus) write(w *metrics.Writer) {
	id := metrics.Label{Name: "certificate", Value: st.ID}
	w.Gauge("millrace_tls_certificate_expiry_timestamp_seconds", "When the certificate expires.", seconds(st.NotAfter), id)
	w.Gauge("millrace_tls_certificate_staple_expiry_timestamp_seconds", "When the OCSP response that is sent ends.", seconds(st.StapleUntil), id)
	failed := 0.0
	if st.Err != nil {
		failed = 1
	}
	w.Gauge("millrace_tls_certificate_load_failed", "Whether the certificate's files could not be loaded again.", failed, id)
}

// seconds returns a time as seconds since 1970, 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}

// WriteMetrics writes when the newest revocation list of each issuer and file ends; it is a metrics.Source.
func (r *Revocation) WriteMetrics(w *metrics.Writer) {
	type list struct{ file, issuer string }
	ends := map[list]time.Time{}
	for _, st := range r.Status() {
		if l := (list{st.File, st.Issuer}); st.NextUpdate.After(ends[l]) {
			ends[l] = st.NextUpdate
		}
	}
	for l, end := range ends {
		w.Gauge("millrace_tls_revocation_list_expiry_timestamp_seconds", "When the revocation list ends.", seconds(end),
			metrics.Label{Name: "file", Value: l.file}, metrics.Label{Name: "issuer", Value: l.issuer})
	}
}
