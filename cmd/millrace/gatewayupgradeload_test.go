package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/websocket"
)

const everyKindConfig = `
admin: {socket: SOCKET}
loops: 2
metrics: {listen: "METRICS"}
listeners:
  - {name: web, address: "LISTEN", protocol: HTTP}
  - {name: safe, address: "SAFE", protocol: HTTPS, versions: ["1.1", "2", "3"], tls: {certificates: [{cert: PAIR, default: true}]}}
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools: [{name: p, backends: [{name: a, address: "BACKEND"}]}]
`

// echoing is a backend that answers with a word, and echoes the messages of WebSockets.
func echoing(t *testing.T, w string) string {
	t.Helper()
	b := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(rw, w)
			return
		}
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			op, m, err := c.ReadMessage(nil)
			if err != nil || c.WriteMessage(op, m) != nil {
				return
			}
		}
	}))
	t.Cleanup(b.Close)
	return strings.TrimPrefix(b.URL, "http://")
}

// pairFile writes a certificate with its key, and returns the roots.
func pairFile(t *testing.T, name string) (path string, roots *x509.CertPool) {
	t.Helper()
	cert, roots := testcert.SelfSigned(name, net.IPv4(127, 0, 0, 1))
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	path = filepath.Join(t.TempDir(), "pair.pem")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, roots
}

// over sends requests by a round tripper.
func over(rt http.RoundTripper, url, want string) func() error {
	client := &http.Client{Transport: rt, Timeout: time.Minute}
	return func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != http.StatusOK || string(body) != want) {
			err = fmt.Errorf("%d %q, want %q", resp.StatusCode, body, want)
		}
		return err
	}
}

// socketOver opens a WebSocket and returns its exchange of a message.
func socketOver(t *testing.T, name, url string, by http.RoundTripper) (c *websocket.Conn, echo func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := websocket.Dial(ctx, url, &websocket.DialOptions{RoundTripper: by})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() { c.CloseNow() })
	n := 0
	return c, func() error {
		n++
		want := bytes.Repeat([]byte{byte('a' + n%26)}, n*37%4000)
		if err := c.WriteMessage(websocket.Binary, want); err != nil {
			return fmt.Errorf("%s, message %d: %w", name, n, err)
		}
		_, got, err := c.ReadMessage(nil)
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%d bytes, want %d", len(got), len(want))
		}
		if err != nil {
			return fmt.Errorf("%s, message %d: %w", name, n, err)
		}
		time.Sleep(10 * time.Millisecond)
		return nil
	}
}

// TestUpgradesLoseNothing upgrades again and again, while requests of each version of HTTP come, over new connections and over kept ones,
// and WebSockets over each version last from before the first upgrade to behind the last: none of them fails, and the processes end
// with their connections. MILLRACE_SOAK is for how long ten upgrades go on; without it there are three. With MILLRACE_SOAK_LOAD=half there
// are more clients, which offer half of what saturates the machine, and else each sends without a pause.
func TestUpgradesLoseNothing(t *testing.T) {
	t.Parallel()
	upgrades, every, requests := 3, time.Duration(0), int64(500)
	if d, err := time.ParseDuration(os.Getenv("MILLRACE_SOAK")); err == nil {
		upgrades, every, requests = 10, d/10, 200_000
	}
	pair, roots := pairFile(t, "gateway.test")
	safe, metrics := testport.Hold(t).String(), testport.Hold(t).String()
	s := newUpgradeSite(t, strings.NewReplacer("BACKEND", echoing(t, "one"), "SAFE", safe, "METRICS", metrics, "PAIR", pair).Replace(everyKindConfig))
	conf := &tls.Config{RootCAs: roots}
	h2 := &http2.Transport{TLSClientConfig: conf}
	defer h2.CloseIdleConnections()

	var l load
	var sockets []*websocket.Conn
	open := func(name, url string, by http.RoundTripper) {
		c, echo := socketOver(t, name, url, by)
		sockets = append(sockets, c)
		l.run(echo)
	}
	for range 16 {
		open("WebSocket over HTTP/1.1", "ws://"+s.addr, nil)
	}
	for range 8 {
		open("WebSocket over HTTP/2", "wss://"+safe, h2)
		h3 := &http3.Transport{TLS: conf}
		defer h3.Close()
		open("WebSocket over HTTP/3", "wss://"+safe, h3)
		l.run(over(h3, "https://"+safe+"/", "one"))
	}
	each := 2
	if atHalf() { // enough to saturate two processors
		each = 16
	}
	for range each {
		l.run(fresh(s.addr, "one"))
		l.runKept(s.addr, "one")
		l.run(over(h2, "https://"+safe+"/", "one"))
	}
	l.run(func() error { // a connection of QUIC for each request
		h3 := &http3.Transport{TLS: conf}
		defer h3.Close()
		return over(h3, "https://"+safe+"/", "one")()
	})
	l.run(func() error { // scrapes
		c := &http.Transport{DisableKeepAlives: true}
		resp, err := (&http.Client{Transport: c, Timeout: time.Minute}).Get("http://" + metrics + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
	if atHalf() {
		l.halve(t)
	}
	first, begin, idle := l.answered.Load(), time.Now(), idleShare(t)
	pids := []int{s.first.Process.Pid}
	for i := range upgrades {
		began := l.answered.Load()
		sometime(t, "more answers", func() bool { return l.answered.Load() > began+20 })
		time.Sleep(every)
		res := s.upgrade("--drain", "1h")
		pids = append(pids, res.PID)
		if len(l.failures()) > 0 {
			t.Errorf("after upgrade %d", i+1)
			break
		}
	}
	if atHalf() {
		l.reportHalf(t, begin, l.answered.Load()-first, idle)
	}
	l.end(t, requests)
	for i, pid := range pids[:1] { // it has all of the WebSockets
		if exited(pid) {
			t.Errorf("process %d has ended before its WebSockets", i)
		}
	}
	for _, c := range sockets {
		if err := c.Close(websocket.CloseNormal, ""); err != nil {
			t.Error(err)
		}
	}
	h2.CloseIdleConnections()
	sometime(t, "the end of the old processes", func() bool {
		for _, pid := range pids[:len(pids)-1] {
			if !exited(pid) {
				return false
			}
		}
		return true
	})
	t.Logf("%d answers and messages, %d upgrades", l.answered.Load(), upgrades)
}
