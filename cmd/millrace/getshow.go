package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	mtls "github.com/millrace/millrace/tls"
	"github.com/millrace/millrace/tls/clienthello"
)

// getReport is the document of --json.
type getReport struct {
	URL     string              `json:"url"`
	Status  int                 `json:"status"`
	HTTP    string              `json:"http"`
	Bytes   int64               `json:"bytes"`
	Times   map[string]float64  `json:"times_ms"`
	Address string              `json:"address"`
	Headers map[string][]string `json:"headers"`
	TLS     *getTLS             `json:"tls,omitempty"`
}

// getTLS holds what was negotiated.
type getTLS struct {
	Version      string           `json:"version"`
	Suite        string           `json:"suite"`
	Group        string           `json:"group"`
	ALPN         string           `json:"alpn"`
	Resumed      bool             `json:"resumed"`
	ECH          bool             `json:"ech"`
	JA4          string           `json:"ja4"`
	Certificates []getCertificate `json:"certificates"`
}

// getCertificate is one of the chain, the server's first.
type getCertificate struct {
	Subject  string    `json:"subject"`
	Issuer   string    `json:"issuer"`
	Names    []string  `json:"names,omitempty"`
	NotAfter time.Time `json:"not_after"`
	Key      string    `json:"key"`
}

// getTimes are the ends of phases.
type getTimes struct {
	begin time.Time
	mu    sync.Mutex
	ends  map[string]time.Duration // since begin; the last one counts, after redirections
}

// set notes the end of a phase.
func (t *getTimes) set(phase string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ends == nil {
		t.ends = map[string]time.Duration{}
	}
	t.ends[phase] = time.Since(t.begin)
	return t.ends[phase]
}

// milliseconds returns the ends of phases.
func (t *getTimes) milliseconds() map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := map[string]float64{}
	for phase, d := range t.ends {
		if phase != "dns_start" {
			m[phase] = float64(d.Microseconds()) / 1e3
		}
	}
	return m
}

// trace notes phases as net/http reports them.
func (t *getTimes) trace(g *getClient) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		TLSHandshakeDone: func(cs tls.ConnectionState, err error) {
			if err == nil {
				g.secured(cs)
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				g.note("request sent after %v", t.set("request").Round(time.Microsecond))
			}
		},
		GotFirstResponseByte: func() { g.note("first byte after %v", t.set("first_byte").Round(time.Microsecond)) },
	}
}

// update changes the report.
func (g *getClient) update(change func(r *getReport)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.report)
}

// end silences what net/http reports late.
func (g *getClient) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

// print writes to the error output, with -v.
func (g *getClient) print(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.verbose && !g.ended {
		fmt.Fprint(g.c.err, text)
	}
}

// note writes a line about the transfer, with -v.
func (g *getClient) note(format string, args ...any) { g.print(fmt.Sprintf("* "+format+"\n", args...)) }

// showHeads writes the headers of request and response, with -v.
func (g *getClient) showHeads(resp *http.Response) {
	var b strings.Builder
	r := resp.Request
	fmt.Fprintf(&b, "> %s %s %s\n> Host: %s\n", r.Method, r.URL.RequestURI(), resp.Proto, r.URL.Host)
	writeGetHeader(&b, ">", r.Header)
	fmt.Fprintf(&b, "< %s %s\n", resp.Proto, resp.Status)
	writeGetHeader(&b, "<", resp.Header)
	g.print(b.String())
}

func writeGetHeader(b *strings.Builder, mark string, h http.Header) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fmt.Fprintf(b, "%s %s: %s\n", mark, name, value)
		}
	}
}

// connected notes the end of the handshake of a transport.
func (g *getClient) connected(a net.Addr, by string) {
	end := g.times.set("connect")
	g.update(func(r *getReport) { r.Address = a.String() })
	g.note("connected to %v after %v, by %s of %s", a, end.Round(time.Microsecond), by, g.stack.name)
}

// secure returns the part about TLS.
func (r *getReport) secure() *getTLS {
	if r.TLS == nil {
		r.TLS = &getTLS{}
	}
	return r.TLS
}

// sentHello notes the fingerprint of the own ClientHello.
func (g *getClient) sentHello(h *clienthello.Hello) {
	ja4, name := h.JA4(), string(h.ServerName)
	g.update(func(r *getReport) { r.secure().JA4 = ja4 })
	if name == "" {
		name = "none"
	}
	g.note("ClientHello: JA4 %s, server name on the wire %s", ja4, name)
}

// secured notes what TLS negotiated.
func (g *getClient) secured(cs tls.ConnectionState) {
	end := g.times.set("tls")
	t := getTLS{
		Version: tls.VersionName(cs.Version), Suite: tls.CipherSuiteName(cs.CipherSuite), ALPN: cs.NegotiatedProtocol,
		Resumed: cs.DidResume, ECH: cs.ECHAccepted,
	}
	if cs.CurveID != 0 {
		t.Group = cs.CurveID.String()
	}
	for _, c := range cs.PeerCertificates {
		t.Certificates = append(t.Certificates, certificateOf(c))
	}
	g.update(func(r *getReport) {
		t.JA4 = r.secure().JA4
		r.TLS = &t
	})
	g.note("%s after %v: %s, %s, ALPN %q, resumed %v, ECH %v",
		t.Version, end.Round(time.Microsecond), t.Suite, t.Group, t.ALPN, t.Resumed, t.ECH)
	for i, c := range t.Certificates {
		days := int(time.Until(c.NotAfter).Hours() / 24)
		g.note("certificate %d: %s, %s, by %s, until %s (%d days)", i, c.Subject, c.Key, c.Issuer, c.NotAfter.Format(time.DateTime), days)
		if len(c.Names) > 0 {
			g.note("  for %s", strings.Join(c.Names, ", "))
		}
	}
}

func certificateOf(c *x509.Certificate) getCertificate {
	shown := getCertificate{c.Subject.String(), c.Issuer.String(), c.DNSNames, c.NotAfter, keyName(c)}
	for _, ip := range c.IPAddresses {
		shown.Names = append(shown.Names, ip.String())
	}
	return shown
}

// keyName returns the kind of a certificate's key.
func keyName(c *x509.Certificate) string {
	if k, ok := c.PublicKey.(interface{ Size() int }); ok {
		return fmt.Sprintf("%v %d", c.PublicKeyAlgorithm, 8*k.Size())
	}
	return c.PublicKeyAlgorithm.String()
}

// fill completes the report and returns it.
func (g *getClient) fill(resp *http.Response) (r getReport) {
	times := g.times.milliseconds()
	g.update(func(all *getReport) {
		all.URL, all.Status, all.HTTP = resp.Request.URL.String(), resp.StatusCode, resp.Proto
		all.Headers, all.Times = resp.Header, times
		if resp.Request.URL.Scheme != "https" {
			all.TLS = nil // of the connection before a redirection
		}
		r = *all
	})
	return r
}

// explain adds what helps to an error.
func (g *getClient) explain(err error, u *url.URL) error {
	if errors.Is(err, errUsage) {
		return err
	}
	err = mtls.Diagnose(err)
	remedy := getRemedy(err, u)
	g.mu.Lock()
	defer g.mu.Unlock()
	if remedy == "" && g.asked {
		remedy = "the server asked for a certificate of the client: --cert FILE"
	}
	if remedy == "" {
		return err
	}
	return fmt.Errorf("%w\n  %s", err, remedy)
}

// getRemedy returns what helps, if that is known.
func getRemedy(err error, u *url.URL) string {
	var refused *mtls.VerifyError
	var dns *net.DNSError
	var record tls.RecordHeaderError
	var ech *tls.ECHRejectionError
	switch {
	case errors.As(err, &refused):
		return certificateRemedy(refused)
	case errors.As(err, &ech):
		if len(ech.RetryConfigList) == 0 {
			return "the server does not do Encrypted ClientHello: leave --ech out"
		}
		return "the server has another key now: --ech " + base64.StdEncoding.EncodeToString(ech.RetryConfigList)
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the server does not speak TLS: say http:// instead of https://"
	case errors.As(err, &dns):
		return "check the name of the host"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no server listens there: check host and port of " + u.Host
	case errors.Is(err, context.Canceled):
		return ""
	case strings.Contains(err.Error(), "certificate required"):
		return "the server wants a certificate of the client: --cert FILE"
	case strings.Contains(err.Error(), "malformed HTTP response"):
		return "the server does not speak HTTP/1.1 here: a TLS server needs https://"
	case strings.Contains(err.Error(), "no application protocol"):
		return "the server does not speak this version of HTTP: leave the flag out"
	}
	return ""
}

// certificateRemedy returns what helps against a certificate that was refused.
func certificateRemedy(e *mtls.VerifyError) string {
	const anyway = "--insecure accepts any certificate"
	switch e.Reason {
	case mtls.ErrUnknownCA:
		return "--cacert FILE trusts the authority of the server; " + anyway
	case mtls.ErrExpired, mtls.ErrNotYetValid:
		return fmt.Sprintf("here it is %s: check the clock, or have the server's certificate renewed; %s",
			time.Now().UTC().Format(time.RFC3339), anyway)
	case mtls.ErrWrongName:
		if e.Certificate != nil && len(e.Certificate.DNSNames) > 0 {
			return "use one of its names: " + strings.Join(e.Certificate.DNSNames, ", ") + "; " + anyway
		}
	case mtls.ErrRevoked:
		return "the authority has revoked it: do not trust this server"
	}
	return anyway
}
