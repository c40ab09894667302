package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/websocket"
)

const wsLong = `Connect to a WebSocket server and talk to it: each line of the standard input is
sent as a text message, and each message received is printed. URL begins with
ws:// or wss://. --stack chooses whose TCP is used: the kernel's, or a stack of
Millrace on an interface, which the kernel goes on using (--addr is its address
there; it needs root). Names are resolved by the kernel's resolver.

At the end of the input the command sends a ping, prints what arrives before the
answer, and closes with code 1000. Ctrl-C closes with code 1001.

Exit code 0 if the connection was closed with code 1000, 1001 or none, 1 for other
codes and errors, 2 for a wrong command line.

--json prints an object for each message: schema, type (text or binary) and text
or base64.`

const wsExamples = `  millrace ws wss://echo.example/chat
  echo hello | millrace ws ws://127.0.0.1:8080
  millrace ws --header 'Authorization: Bearer TOKEN' --subprotocol chat wss://a.example
  millrace ws --json --ping 30s wss://feed.example < /dev/null
  sudo millrace ws --stack eth1 --addr 198.18.0.3/24 ws://198.18.0.2/chat`

// wsTimeout bounds the handshake, and the answer to a ping.
const wsTimeout = 10 * time.Second

// errInput is an error of reading the lines to send.
var errInput = errors.New("standard input")

// wsMessage is the document of --json.
type wsMessage struct {
	Type   string  `json:"type"`
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"` // encoding/json writes bytes so
}

// wsClient is a run of the command.
type wsClient struct {
	c             *console
	headers       []string
	subprotocols  []string
	noCompression bool
	insecure      bool
	ping          time.Duration
	asJSON        bool
	verbose       bool
	stack         chosenStack
	mu            sync.Mutex // serializes messages about the connection
}

func newWS(c *console) *cobra.Command {
	w := &wsClient{c: c}
	return w.command()
}

func (w *wsClient) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ws URL",
		Short:   "Talk to a WebSocket server",
		Long:    wsLong,
		Example: wsExamples,
	}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%d URLs; name one, such as ws://127.0.0.1:8080", len(args))
		}
		return nil
	}
	f := cmd.Flags()
	f.StringArrayVarP(&w.headers, "header", "H", nil, "further header of the request, \"Name: value\"")
	f.StringArrayVar(&w.subprotocols, "subprotocol", nil, "subprotocol to offer")
	f.BoolVar(&w.noCompression, "no-compression", false, "do not offer compression")
	f.BoolVar(&w.insecure, "insecure", false, "accept any certificate of a wss server")
	f.DurationVar(&w.ping, "ping", 0, "send a ping in this interval, and fail without an answer (0: none)")
	w.stack.register(f)
	f.BoolVar(&w.asJSON, "json", false, "print JSON")
	f.BoolVarP(&w.verbose, "verbose", "v", false, "print the handshake and control frames to the error output")
	cmd.RunE = command(func(ctx context.Context, args []string) error { return w.run(ctx, args[0]) })
	return cmd
}

// run connects and talks.
func (w *wsClient) run(ctx context.Context, rawURL string) (err error) {
	o, err := w.options(rawURL)
	if err != nil {
		return err
	}
	stack, err := w.stack.openStack()
	if err != nil {
		return err
	}
	if stack != nil {
		defer func() { err = errors.Join(err, stack.Close()) }()
		o.DialContext = resolved(stack.DialContext)
	}
	return w.talk(ctx, rawURL, o)
}

// resolved returns a dial function that resolves names by the kernel's resolver, and tries one address after another.
func resolved(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		return firstReached(addrs, func(a netip.Addr) (net.Conn, error) { return dial(ctx, network, net.JoinHostPort(a.String(), port)) })
	}
}

// talk moves lines and messages until one side closes.
func (w *wsClient) talk(ctx context.Context, rawURL string, o *websocket.DialOptions) error {
	dialing, cancel := context.WithTimeout(ctx, wsTimeout)
	conn, err := websocket.Dial(dialing, rawURL, o)
	cancel()
	if err != nil {
		return w.explain(err, rawURL)
	}
	var open sync.WaitGroup // what writes to the terminal while the connection is open
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		conn.CloseNow()
		open.Wait()
	}()
	w.note("connected by the TCP of %s: subprotocol %q, compression %v", w.stack.name, conn.Subprotocol(), conn.Deflate().Enabled)
	received := make(chan error, 1)
	open.Go(func() { received <- w.receive(conn) })
	sent := make(chan error, 1)
	go func() { sent <- w.send(ctx, conn) }() // ends with the process if the input has no end
	alive := make(chan error, 1)
	if w.ping > 0 {
		open.Go(func() {
			// Other errors are those of a connection that ends, which received has the reason of.
			if err := w.keepAlive(ctx, conn); errors.Is(err, context.DeadlineExceeded) {
				alive <- err
			}
		})
	}
	select {
	case err = <-received:
		return wsEnd(err)
	case err = <-alive:
		return err
	case err = <-sent:
		switch {
		case err == nil, errors.Is(err, context.DeadlineExceeded):
			return w.close(conn, websocket.CloseNormal)
		case errors.Is(err, errInput):
			_ = w.close(conn, websocket.CloseGoingAway)
			return err
		}
		// The connection ends, and received has the reason.
		select {
		case err = <-received:
		case <-time.After(wsTimeout):
		}
		return wsEnd(err)
	case <-ctx.Done():
		return w.close(conn, websocket.CloseGoingAway)
	}
}

// options returns what the flags say about the handshake.
func (w *wsClient) options(rawURL string) (*websocket.DialOptions, error) {
	u, err := url.Parse(rawURL)
	if err != nil || !slices.Contains([]string{"ws", "wss", "http", "https"}, u.Scheme) || u.Host == "" {
		return nil, usage("%q is no WebSocket URL; say ws://HOST[:PORT]/PATH or wss://HOST[:PORT]/PATH", rawURL)
	}
	o := &websocket.DialOptions{Header: http.Header{}, Subprotocols: w.subprotocols}
	for _, h := range w.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usage("--header %q: say \"Name: value\"", h)
		}
		o.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	o.Conn.Deflate.Enabled = !w.noCompression
	if w.insecure {
		o.TLS = &tls.Config{InsecureSkipVerify: true} // the user asked for it
	}
	if w.verbose {
		o.Trace = w.trace
	}
	return o, nil
}

// note writes a line about the connection, with -v.
func (w *wsClient) note(format string, args ...any) {
	if w.verbose {
		w.mu.Lock()
		defer w.mu.Unlock()
		fmt.Fprintf(w.c.err, "* "+format+"\n", args...)
	}
}

// trace writes the handshake.
func (w *wsClient) trace(r *http.Request, resp *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.c.err, "> %s %s %s\n> Host: %s\n", r.Method, r.URL.RequestURI(), r.Proto, r.Host)
	w.writeHeader(">", r.Header)
	fmt.Fprintf(w.c.err, "< %s %s\n", resp.Proto, resp.Status)
	w.writeHeader("<", resp.Header)
}

func (w *wsClient) writeHeader(mark string, h http.Header) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fmt.Fprintf(w.c.err, "%s %s: %s\n", mark, name, value)
		}
	}
}

// receive prints messages until the connection ends.
func (w *wsClient) receive(conn *websocket.Conn) error {
	var buf []byte
	for {
		op, p, err := conn.ReadMessage(buf)
		if err != nil {
			return err
		}
		buf = p
		if err := w.show(op, p); err != nil {
			return err
		}
	}
}

// show prints a message.
func (w *wsClient) show(op websocket.Opcode, p []byte) error {
	switch {
	case w.asJSON:
		m := wsMessage{Type: op.String()}
		if op == websocket.Text {
			text := string(p)
			m.Text = &text
		} else {
			m.Base64 = p
		}
		return w.c.jsonLine(m)
	case op == websocket.Text:
		w.c.printf("%s\n", p)
	default:
		w.c.printf("%s\n", w.c.paint(dim, fmt.Sprintf("binary message of %d bytes: %x", len(p), p[:min(len(p), 32)])))
	}
	return w.c.lost
}

// send sends the lines of the standard input, and at its end waits for the answer to a ping.
func (w *wsClient) send(ctx context.Context, conn *websocket.Conn) error {
	lines := bufio.NewScanner(w.c.in)
	lines.Buffer(nil, websocket.DefaultMessageLimit)
	for lines.Scan() {
		if err := conn.WriteMessage(websocket.Text, []byte(strings.ToValidUTF8(lines.Text(), "\uFFFD"))); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", errInput, err)
	}
	if w.ping > 0 {
		<-ctx.Done() // a listener: it stays until the server closes or Ctrl-C
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, wsTimeout)
	defer cancel()
	return conn.Ping(ctx)
}

// keepAlive sends pings until one has no answer.
func (w *wsClient) keepAlive(ctx context.Context, conn *websocket.Conn) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(w.ping):
		}
		start := time.Now()
		waiting, cancel := context.WithTimeout(ctx, wsTimeout)
		err := conn.Ping(waiting)
		cancel()
		if err != nil {
			return fmt.Errorf("no answer to a ping within %v: %w", wsTimeout, err)
		}
		w.note("pong after %v", time.Since(start).Round(time.Microsecond))
	}
}

// close makes the closing handshake.
func (w *wsClient) close(conn *websocket.Conn, code websocket.CloseCode) error {
	w.note("closing with %v", code)
	if err := conn.Close(code, ""); err != nil {
		return fmt.Errorf("closing: the server did not complete the handshake: %w", err)
	}
	return nil
}

// wsEnd returns the error of how a connection ended, nil for a normal end.
func wsEnd(err error) error {
	var closed *websocket.CloseError
	if errors.As(err, &closed) {
		switch closed.Code {
		case websocket.CloseNormal, websocket.CloseGoingAway, websocket.CloseNoStatus:
			return nil
		}
	}
	return err
}

// explain adds what helps to the error of a handshake.
func (w *wsClient) explain(err error, rawURL string) error {
	var refusal *websocket.HandshakeError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var dns *net.DNSError
	var record tls.RecordHeaderError
	remedy := ""
	switch {
	case errors.As(err, &refusal):
		remedy = wsRefused(refusal)
	case errors.As(err, &authority), errors.As(err, &hostname):
		remedy = "--insecure accepts any certificate"
	case errors.As(err, &record):
		remedy = "the server does not speak TLS: say ws:// instead of wss://"
	case errors.As(err, &dns):
		remedy = "check the name of the host"
	case errors.Is(err, syscall.ECONNREFUSED):
		remedy = "no server listens there: check host and port of " + rawURL
	case errors.Is(err, context.DeadlineExceeded):
		remedy = fmt.Sprintf("the server did not answer within %v", wsTimeout)
	case strings.Contains(err.Error(), "malformed HTTP response"):
		remedy = "the server does not speak HTTP/1.1 here: a TLS server needs wss://"
	}
	if remedy == "" {
		return err
	}
	return fmt.Errorf("%w\n  %s", err, remedy)
}

// wsRefused returns what helps after a response that refuses, and the beginning of its body.
func wsRefused(e *websocket.HandshakeError) string {
	var lines []string
	switch {
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		lines = append(lines, "the server wants credentials or an origin: --header 'Authorization: ...', --header 'Origin: ...'")
	case e.Status == http.StatusNotFound:
		lines = append(lines, "check the path of the URL")
	case e.Status >= 300 && e.Status < 400:
		lines = append(lines, "redirections are not followed: use "+e.Header.Get("Location"))
	case e.Status == http.StatusOK, e.Status == http.StatusUpgradeRequired, e.Status == http.StatusBadRequest:
		lines = append(lines, "this path serves no WebSocket, or a proxy removed the Upgrade header")
	}
	if body := strings.TrimSpace(string(e.Body)); body != "" {
		first, _, _ := strings.Cut(body, "\n")
		lines = append(lines, fmt.Sprintf("the server says: %.200q", first))
	}
	return strings.Join(lines, "\n  ")
}
