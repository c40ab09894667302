package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

const getLong = `Get a URL over HTTP or HTTPS and print its content. The version of HTTP is
negotiated unless a flag names one; HTTP/3 is spoken only if --http3 asks for
it. --stack chooses whose TCP and UDP are used: the kernel's, or a stack of
Millrace on an interface, which the kernel goes on using (--addr is its address
there; it needs root). Names are resolved by the kernel's resolver in either
case.

-v shows the time of each phase, what was negotiated, the certificates and the
fingerprint JA4 of the own ClientHello. --keylog writes the secrets of the
connection, by which Wireshark decrypts it: for tests only. --qlog writes what
QUIC does (JSON-SEQ, for qvis), with --http3.

Exit code 0 for a status below 400, 1 for others and errors, 2 for a wrong
command line, 4 when --max-time has passed.

--json prints an object: schema, url, status, http, bytes, times_ms of each
phase since the begin, address, headers, and tls with version, suite, group,
alpn, resumed, ech, ja4 and certificates. The content goes to the file of -o, or
nowhere. With --http3, connect and tls are one phase, and ja4 is empty.`

const getExamples = `  millrace get https://www.example/
  millrace get -v --http2 -o page.html https://www.example/
  millrace get --http3 https://www.example/
  millrace get --json --cacert ca.pem https://198.18.0.1:8443/
  sudo millrace get --stack eth1 --addr 198.18.0.3/24 http://198.18.0.2/`

// getClient is a run of the command.
type getClient struct {
	c *console

	headers           []string
	output, keylog    string
	cacert, cert, key string
	ech, qlog         string
	stack             chosenStack
	insecure, follow  bool
	asJSON, verbose   bool
	maxTime           time.Duration
	versions          []bool // which of getTransports was named

	times getTimes

	mu     sync.Mutex // of what follows: net/http reports from goroutines of its own, if need be after the end
	report getReport
	ended  bool // nothing is printed any more
	asked  bool // the server asked for a certificate of the client, and there was none
}

// getTransport is a version of HTTP that the command offers, by a flag of its name.
type getTransport struct {
	name, help string
	open       func(g *getClient, d *getDialer) (http.RoundTripper, error)
}

// getTransports are the versions that can be demanded. Without a flag the server chooses among those
// that run over TCP.
var getTransports = []getTransport{
	{"http1.1", "speak HTTP/1.1 only", func(_ *getClient, d *getDialer) (http.RoundTripper, error) { return d.overTCP("http/1.1") }},
	{"http2", "speak HTTP/2 only, also without TLS", func(_ *getClient, d *getDialer) (http.RoundTripper, error) { return d.overTCP("h2") }},
	{"http3", "speak HTTP/3 only, over QUIC", func(_ *getClient, d *getDialer) (http.RoundTripper, error) { return d.overQUIC() }},
}

func newGet(c *console) *cobra.Command {
	g := &getClient{c: c, versions: make([]bool, len(getTransports))}
	return g.command()
}

func (g *getClient) command() *cobra.Command {
	cmd := &cobra.Command{Use: "get URL", Short: "Get a URL", Long: getLong, Example: getExamples}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%d URLs; name one, such as https://www.example/", len(args))
		}
		return nil
	}
	f := cmd.Flags()
	for i, t := range getTransports {
		f.BoolVar(&g.versions[i], t.name, false, t.help)
	}
	f.StringArrayVarP(&g.headers, "header", "H", nil, "further header of the request, \"Name: value\"")
	f.StringVarP(&g.output, "output", "o", "", "write the content to a file, once it is complete")
	f.BoolVarP(&g.follow, "location", "L", false, "follow redirections")
	f.StringVar(&g.cacert, "cacert", "", "PEM file of the authorities to trust instead of the system's")
	f.StringVar(&g.cert, "cert", "", "PEM file of the client's certificate, and of its key without --key")
	f.StringVar(&g.key, "key", "", "PEM file of the client's key")
	f.BoolVar(&g.insecure, "insecure", false, "accept any certificate")
	f.StringVar(&g.ech, "ech", "", "encrypt the ClientHello by the value of ech in DNS")
	f.StringVar(&g.keylog, "keylog", "", "append the secrets of TLS to a file (default $SSLKEYLOGFILE)")
	f.StringVar(&g.qlog, "qlog", "", "write a qlog of each QUIC connection to a file in this folder")
	g.stack.register(f)
	f.DurationVar(&g.maxTime, "max-time", 0, "give up after this time (0: never)")
	f.BoolVar(&g.asJSON, "json", false, "print what happened as JSON, instead of the content")
	f.BoolVarP(&g.verbose, "verbose", "v", false, "print phases, TLS and headers to the error output")
	names := make([]string, len(getTransports))
	for i, t := range getTransports {
		names[i] = t.name
	}
	cmd.MarkFlagsMutuallyExclusive(names...)
	cmd.RunE = command(func(ctx context.Context, args []string) error { return g.run(ctx, args[0]) })
	return cmd
}

// run gets the URL.
func (g *getClient) run(ctx context.Context, rawURL string) (err error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usage("%q is no URL of HTTP; say http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH", rawURL)
	}
	if g.qlog != "" && !g.versions[len(g.versions)-1] {
		return usage("--qlog needs --http3")
	}
	if g.maxTime > 0 {
		var cancel context.CancelFunc
		late := coded{fmt.Errorf("no complete response within %v (--max-time)", g.maxTime), errTimeout}
		ctx, cancel = context.WithTimeoutCause(ctx, g.maxTime, late)
		defer cancel()
	}
	d, err := g.dialer(u)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	transport, err := g.transport(d)
	if err != nil {
		return err
	}
	defer g.end()
	g.times.begin = time.Now()
	resp, err := g.request(ctx, transport, rawURL)
	if err == nil {
		err = g.receive(ctx, resp)
	}
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errTimeout) {
			return cause
		}
		return g.explain(err, u)
	}
	return g.finish(resp)
}

// transport returns what the flags name, or what negotiates.
func (g *getClient) transport(d *getDialer) (http.RoundTripper, error) {
	if i := slices.Index(g.versions, true); i >= 0 {
		return getTransports[i].open(g, d)
	}
	return d.overTCP("h2", "http/1.1")
}

// request sends the request and returns the response without its content.
func (g *getClient) request(ctx context.Context, transport http.RoundTripper, rawURL string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, g.times.trace(g)), http.MethodGet, rawURL, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "millrace/"+thisBuild().Version)
	r.Header.Set("Accept-Encoding", "identity")
	for _, h := range g.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usage("--header %q: say \"Name: value\"", h)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	client := http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if !g.follow {
			return http.ErrUseLastResponse
		}
		if len(via) >= 10 {
			return errors.New("more than 10 redirections")
		}
		g.note("redirected to %s", next.URL)
		return nil
	}}
	return client.Do(r)
}

// receive moves the content to where it goes.
func (g *getClient) receive(ctx context.Context, resp *http.Response) error {
	defer resp.Body.Close()
	g.showHeads(resp)
	w, done, err := g.sink()
	if err != nil {
		return err
	}
	bar := newGetBar(g.c, resp.ContentLength, g.output != "" || g.asJSON)
	n, err := io.Copy(io.MultiWriter(w, bar), resp.Body)
	_ = bar.Finish()
	g.update(func(r *getReport) { r.Bytes = n })
	if err != nil {
		err = fmt.Errorf("after %d bytes of content: %w", n, err)
	}
	return done(err)
}

// sink returns where the content goes, and what ends it: a file takes its name when it is complete.
func (g *getClient) sink() (w io.Writer, done func(error) error, err error) {
	switch {
	case g.output == "" && g.asJSON:
		return io.Discard, func(err error) error { return err }, nil
	case g.output == "" || g.output == "-":
		return g.c.out, func(err error) error { return err }, nil
	}
	f, err := os.CreateTemp(filepath.Dir(g.output), ".millrace-get-*")
	if err != nil {
		return nil, nil, err
	}
	return f, func(err error) error {
		if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
			err = os.Rename(f.Name(), g.output)
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
		return err
	}, nil
}

// finish prints the report and turns the status into an exit code.
func (g *getClient) finish(resp *http.Response) error {
	g.times.set("total")
	report := g.fill(resp)
	g.note("%d bytes in %.3f s", report.Bytes, time.Since(g.times.begin).Seconds())
	if g.asJSON {
		if err := g.c.json(report); err != nil {
			return err
		}
	}
	switch {
	case resp.StatusCode >= 400:
		return fmt.Errorf("the server answers %s", resp.Status)
	case resp.StatusCode >= 300 && resp.Header.Get("Location") != "":
		g.c.complain(fmt.Errorf("redirected to %s; -L follows", resp.Header.Get("Location")))
	}
	return nil
}

// newGetBar returns the progress of a download. It is silent where the error output is no terminal,
// and for short ones: what fits a window or two is there before it can be read.
func newGetBar(c *console, size int64, hidden bool) *progressbar.ProgressBar {
	const short = 1 << 20
	visible := c.live && (hidden || c.width == 0) && (size < 0 || size > short)
	return progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(c.err),
		progressbar.OptionSetVisibility(visible),
		progressbar.OptionSetDescription("get"),
		progressbar.OptionShowBytes(true),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}
