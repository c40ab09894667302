package http3_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/millrace/millrace/http3"
)

// A small request and its response, both ends in this process.
func BenchmarkRequest(b *testing.B) {
	url := serve(b, &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	})})
	tr := transport(b, &http3.Transport{DisableCompression: true})
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		resp, err := tr.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}
