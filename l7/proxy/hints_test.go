package proxy

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"testing"
)

// Navigations by HTTP/2 and HTTP/3 get hints before the response, and no other requests.
func TestEarlyHints(t *testing.T) {
	links := []string{"</style.css>; rel=preload; as=style", "<https://cdn.example>; rel=preconnect"}
	r := http3Rig(t, echoBackend(t, false), func(r *rig) { r.rule.EarlyHints = NewEarlyHints(links) })
	for _, c := range []struct {
		name   string
		client *http.Client
		method string
		mode   string
		want   bool
	}{
		{"HTTP/2", r.client(true), "GET", "", true},
		{"HTTP/2 navigation", r.client(true), "GET", "navigate", true},
		{"HTTP/3", r.client3(), "GET", "", true},
		{"HTTP/1.1", r.client(false), "GET", "", false},
		{"POST", r.client(true), "POST", "", false},
		{"HEAD", r.client(true), "HEAD", "", false},
		{"a part", r.client(true), "GET", "no-cors", false},
	} {
		var got []string
		trace := httptrace.WithClientTrace(context.WithoutCancel(t.Context()), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			if code == 103 {
				got = append(got, header["Link"]...)
			}
			return nil
		}})
		req, err := http.NewRequestWithContext(trace, c.method, "https://"+r.secure+"/", nil)
		must(t, err)
		if c.mode != "" {
			req.Header.Set("Sec-Fetch-Mode", c.mode)
		}
		resp, err := c.client.Do(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != 200 || c.want && !slices.Equal(got, links) || !c.want && got != nil {
			t.Errorf("%s: status %d, hints %q", c.name, resp.StatusCode, got)
		}
	}
	r.settled()
}
