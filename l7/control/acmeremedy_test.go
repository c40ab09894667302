package control

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/tls"
	"github.com/millrace/millrace/tls/acme"
)

// What to do depends on what has failed: while the authority cannot be reached, names and ports are not what keeps a certificate away.
func TestRemediesOfCertificatesThatWereNotObtained(t *testing.T) {
	own := httptest.NewUnstartedServer(http.NotFoundHandler())
	own.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	own.StartTLS()
	defer own.Close()
	refuses := httptest.NewServer(http.NotFoundHandler()) // an authority, whose answers are no directory
	defer refuses.Close()
	for directory, want := range map[string]string{
		"https://" + testport.Hold(t).String() + "/dir": "the authority of acme.directory cannot be reached",
		own.URL + "/dir":     "acme.ca_file",
		refuses.URL + "/dir": "the names have to lead here",
	} {
		events := make(chan acme.Event, 1)
		m, err := acme.New(acme.Options{Directory: directory, AgreeToTerms: true, Dir: t.TempDir(), Report: func(e acme.Event) { events <- e }})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Set([]acme.Certificate{{Names: []string{"a.example"}, Store: &tls.Store{}}}); err != nil {
			t.Fatal(err)
		}
		m.Renew(t.Context())
		var text bytes.Buffer
		logCertificate(slog.New(slog.NewTextHandler(&text, nil)), <-events)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(text.String(), want) || strings.Contains(text.String(), "the names have") != strings.HasPrefix(want, "the names") {
			t.Errorf("%s: %s, want %q", directory, &text, want)
		}
	}
}
