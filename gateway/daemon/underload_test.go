package daemon

//lint:file-ignore SA1019 x/net's HTTP/2 is a peer here: net/http has no extended CONNECT and no Upgrade to h2c

import (
	"bufio"
	"bytes"
	"context"
	ctls "crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/websocket"
)

// underLoadEnv is how many requests TestReloadsUnderLoadLoseNothing makes in place of underLoadRequests.
const (
	underLoadEnv      = "MILLRACE_RELOAD_REQUESTS"
	underLoadRequests = 20000
	underLoadReloads  = 20
)

// underLoadConfig has places for what the reloads change.
const underLoadConfig = `
admin: {socket: SOCKET}
loops: 2
listeners:
- {name: web, address: "LISTEN", protocol: HTTP}
- {name: safe, address: "SECURE", protocol: HTTPS, versions: ["1.1", "2", "3"], tls: {certificates: [{cert: PAIR, default: true}]}}
MORE
routes:
- name: r
  rules:
  - matches: [{path: {value: /ROUTE}}]
    filters: [{type: FixedResponse, status_code: 418}]
  - filters: [{type: ResponseHeaderModifier, set: [{name: x-reload, value: "ROUND"}]}]
    backend_refs: [{name: p}]
pools:
- {name: p, balance: BALANCE, backends: [{name: a, address: "A"}, {name: b, address: "B", weight: WEIGHT}]}
`

// echoServer answers requests with their path, and the messages of WebSockets with themselves.
func echoServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			io.WriteString(w, r.URL.Path)
			return
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		for {
			op, p, err := c.ReadMessage(nil)
			if err != nil {
				return
			}
			c.WriteMessage(op, p)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// underLoad is a gateway that is reloaded while clients use it.
type underLoad struct {
	*site
	secure string
	tls    *ctls.Config
	done   atomic.Bool
	served atomic.Int64
	echoed atomic.Int64
	fails  atomic.Int64
	open   atomic.Int64 // WebSockets
	all    sync.WaitGroup
}

// fail notes a request or a connection that was lost, and prints the first few.
func (u *underLoad) fail(format string, args ...any) {
	if u.fails.Add(1) <= 10 {
		u.t.Errorf(format, args...)
	}
}

// requests makes requests of HTTP/1.1 until n have been served by all together. With fresh each has a connection of its own.
func (u *underLoad) requests(n int64, fresh bool) {
	defer u.all.Done()
	var c net.Conn
	var r *bufio.Reader
	for i := 0; u.served.Load() < n; i++ {
		if c == nil {
			var err error
			if c, err = net.Dial("tcp", u.addr); err != nil {
				u.fail("connect: %v", err)
				return
			}
			r = bufio.NewReader(c)
		}
		c.SetDeadline(time.Now().Add(time.Minute))
		path := fmt.Sprintf("/%p/%d", r, i)
		connection := "keep-alive"
		if fresh {
			connection = "close"
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: gateway.test\r\nConnection: %s\r\n\r\n", path, connection)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			u.fail("request %d of a connection: %v", i, err)
			c.Close()
			c = nil
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || string(body) != path {
			u.fail("request %d of a connection: %d %q %v", i, resp.StatusCode, body, err)
		}
		if u.served.Add(1); fresh || resp.Close { // the gateway may end a connection with a response that says so
			c.Close()
			c = nil
		}
	}
	if c != nil {
		c.Close()
	}
}

// streams makes requests of HTTP/2 or HTTP/3.
func (u *underLoad) streams(n int64, major int, by http.RoundTripper) {
	client := &http.Client{Transport: by, Timeout: 20 * time.Second}
	defer u.all.Done()
	for i := 0; u.served.Load() < n; i++ {
		path := fmt.Sprintf("/%d", i)
		resp, err := client.Get("https://" + u.secure + path)
		if err != nil {
			u.fail("request of HTTP/%d: %v", major, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.ProtoMajor != major || resp.StatusCode != 200 || string(body) != path {
			u.fail("request of HTTP/%d: %d %q %v", major, resp.StatusCode, body, err)
		}
		u.served.Add(1)
	}
}

// echo exchanges messages over a WebSocket until the end.
func (u *underLoad) echo(name string, c *websocket.Conn) {
	defer u.all.Done()
	defer c.CloseNow()
	for i := 0; !u.done.Load(); i++ {
		want := bytes.Repeat([]byte{byte('a' + i%26)}, i%4000)
		if err := c.WriteMessage(websocket.Binary, want); err != nil {
			u.fail("%s: %v", name, err)
			u.open.Add(-1)
			return
		}
		if _, got, err := c.ReadMessage(nil); err != nil || !bytes.Equal(got, want) {
			u.fail("%s, message %d: %d of %d bytes, %v", name, i, len(got), len(want), err)
			u.open.Add(-1)
			return
		}
		u.echoed.Add(1)
		time.Sleep(20 * time.Millisecond)
	}
}

// websockets opens n WebSockets at a URL, by extended CONNECT where there is a round tripper, and has them exchange messages.
func (u *underLoad) websockets(ctx context.Context, n int, version, url string, by http.RoundTripper) {
	u.t.Helper()
	for i := range n {
		c, err := websocket.Dial(ctx, url+"/ws", &websocket.DialOptions{RoundTripper: by})
		if err != nil {
			u.t.Fatalf("WebSocket %d over %s: %v", i, version, err)
		}
		u.all.Add(1)
		u.open.Add(1)
		go u.echo(fmt.Sprintf("WebSocket %d over %s", i, version), c)
	}
}

// Twenty reloads that change routes, filters, listeners, balancing and weights lose no request and no WebSocket.
func TestReloadsUnderLoadLoseNothing(t *testing.T) {
	n := int64(underLoadRequests)
	if v, err := strconv.ParseInt(os.Getenv(underLoadEnv), 10, 64); err == nil {
		n = v
	}
	u := &underLoad{secure: free(t)}
	more, a, b := free(t), echoServer(t), echoServer(t)
	dir := t.TempDir()
	config := func(round int) string {
		extra := ""
		if round%2 == 1 {
			extra = `- {name: more, address: "` + more + `", protocol: HTTP}`
		}
		return strings.NewReplacer("SECURE", u.secure, "PAIR", filepath.Join(dir, "gateway.test"), "MORE", extra, "ROUTE", fmt.Sprint("fixed", round), "ROUND", fmt.Sprint(round),
			"BALANCE", []string{"round_robin", "least_request", "consistent_hash"}[round%3], `"A"`, `"`+a+`"`, `"B"`, `"`+b+`"`,
			"WEIGHT", fmt.Sprint(1+round%5)).Replace(underLoadConfig)
	}
	u.tls = &ctls.Config{RootCAs: writePair(t, dir, "gateway.test"), ServerName: "gateway.test"}
	u.site = newSite(t, config(0))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	h2 := &http2.Transport{TLSClientConfig: u.tls}
	defer h2.CloseIdleConnections()
	h3 := &http3.Transport{TLS: u.tls}
	defer h3.Close()
	u.websockets(ctx, 16, "HTTP/1.1", "ws://"+u.addr, nil)
	u.websockets(ctx, 8, "HTTP/2", "wss://"+u.secure, h2) // RFC 8441
	u.websockets(ctx, 8, "HTTP/3", "wss://"+u.secure, h3) // RFC 9220
	began := time.Now()
	u.all.Add(6)
	for range 3 {
		go u.requests(n, false)
	}
	go u.requests(n, true)
	go u.streams(n, 2, h2)
	go u.streams(n, 3, h3)
	for round := 1; round <= underLoadReloads; round++ {
		for u.served.Load() < n*int64(round)/(underLoadReloads+1) {
			time.Sleep(time.Millisecond)
			if ctx.Err() != nil {
				t.Fatal("the clients stand still")
			}
		}
		u.reload(config(round))
	}
	for u.served.Load() < n && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	u.done.Store(true)
	u.all.Wait()
	if open := u.open.Load(); open != 32 {
		t.Errorf("%d of 32 WebSockets are open", open)
	}
	t.Logf("%d requests and %d messages in %v, %d lost, %d WebSockets to the end", u.served.Load(), u.echoed.Load(),
		time.Since(began), u.fails.Load(), u.open.Load())
}
