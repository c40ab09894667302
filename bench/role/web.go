package role

import (
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/webpeer"
)

// WebOptions are the flags of the roles of suite gateway. -op, -conns, -size, -rate and -to are those of all roles.
type WebOptions struct {
	Backend   string // address that a proxy forwards to
	Cert, Key string // files, PEM; a certificate means TLS
	// Front and Back are the addresses of a proxy over our stack at FrontDev and BackDev, with the length of the prefix.
	Front, Back string
	HTTP2       bool
	Streams     int    // requests at a time on a connection of HTTP/2 or 3
	PerConn     int    // requests on a connection; 0 is no limit
	Paths       int    // different paths of requests
	Coding      string // of content, that clients ask for
	// Saturate is the time in which a generator with a rate first makes as many requests as it can. The rate is then this share of what
	// was answered, in percent.
	Saturate time.Duration
}

func (o *WebOptions) flags(fs *flag.FlagSet) {
	fs.StringVar(&o.Backend, "backend", "", "address that a proxy forwards to")
	fs.StringVar(&o.Cert, "cert", "", "certificate of a proxy, PEM; clients speak TLS then")
	fs.StringVar(&o.Key, "key", "", "its private key, PEM")
	fs.StringVar(&o.Front, "front", "", "address and prefix of a proxy over AF_XDP, towards clients")
	fs.StringVar(&o.Back, "back", "", "the same towards the backend")
	fs.BoolVar(&o.HTTP2, "http2", false, "clients speak HTTP/2")
	fs.IntVar(&o.Streams, "streams", 1, "requests at a time on a connection of HTTP/2 or HTTP/3")
	fs.IntVar(&o.PerConn, "per-conn", 0, "requests on a connection before another is opened; 0 is no limit")
	fs.IntVar(&o.Paths, "paths", 0, "different paths of requests")
	fs.StringVar(&o.Coding, "coding", "", "content coding that clients with HTTP/1.1 ask for; responses are text then")
	fs.DurationVar(&o.Saturate, "saturate", 0, "the rate is -rate percent of what was answered in this time without a limit")
}

// Args are the flags that flags reads.
func (o WebOptions) Args() []string {
	return []string{
		"-backend", o.Backend, "-cert", o.Cert, "-key", o.Key, "-front", o.Front, "-back", o.Back, "-http2=" + strconv.FormatBool(o.HTTP2),
		"-streams", strconv.Itoa(o.Streams), "-per-conn", strconv.Itoa(o.PerConn), "-paths", strconv.Itoa(o.Paths),
		"-saturate", o.Saturate.String(), "-coding", o.Coding,
	}
}

// webSlice is the length of the parts of the window whose quantiles a generator with a schedule tells, beside those of the whole.
const webSlice = 100 * time.Millisecond

// webStep is the time that a role waits for something to happen before it looks whether it has to end.
const webStep = 20 * time.Millisecond

// openWebServe is the backend of suite gateway at -to.
func openWebServe(o roleOptions) (roleWork, error) {
	at, err := netip.ParseAddrPort(o.stream.To)
	if err != nil {
		return roleWork{}, err
	}
	b, err := webpeer.NewBackend(at)
	if err != nil {
		return roleWork{}, err
	}
	return profiled(o.profile, roleWork{
		version: runtime.Version(),
		step:    func() error { return b.Run(webStep) },
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{
				"requests": b.Requests.Load(), harness.BackendConns: b.Connections.Load(), "messages": b.Messages.Load(),
			}, nil
		},
		stop: func() error { return nil },
	}, nil)
}

// openWebLoad is the generator of suite gateway towards -to.
func openWebLoad(o roleOptions) (roleWork, error) {
	lo, err := o.load()
	if err != nil {
		return roleWork{}, err
	}
	if o.web.Saturate > 0 {
		if lo.Rate, err = saturation(lo, o.web.Saturate); err != nil {
			return roleWork{}, err
		}
		lo.Rate = lo.Rate * o.rate / 100
	}
	g, err := webpeer.NewLoad(lo)
	if err != nil {
		return roleWork{}, err
	}
	if lo.Op == webpeer.OpIdle {
		if err := allIdle(g, lo.Conns); err != nil {
			return roleWork{}, err
		}
	}
	before, parts := g.Times.Counts(), webpeer.Slices{Of: &g.Times, Every: webSlice}
	return profiled(o.profile, roleWork{
		version: runtime.Version(),
		step: func() error {
			if lo.Rate > 0 {
				parts.Look(time.Now())
			}
			return g.Run(webStep)
		},
		counts: func() (map[string]uint64, error) {
			c := map[string]uint64{
				"requests": g.Requests.Load(), "bytes": g.Bytes.Load(), "errors": g.Errors.Load(), "connections": g.Connections.Load(),
				"due": uint64(lo.Rate),
			}
			if lo.Coding != "" && c["bytes"] > 0 {
				c[harness.CodedShare] = 1000 * g.Coded.Load() / c["bytes"]
			}
			if lo.Rate > 0 {
				c[harness.Late] = uint64(g.Late.Swap(0)) / 1000
				p99, p999 := parts.Medians()
				c[harness.SliceP99], c[harness.SliceP999] = uint64(p99.Microseconds()), uint64(p999.Microseconds())
			}
			after := g.Times.Counts()
			for name, q := range map[string]float64{harness.P50: 0.5, harness.P99: 0.99, harness.P999: 0.999} {
				c[name] = uint64(webpeer.Quantile(before, after, q).Microseconds())
			}
			before = after
			return c, nil
		},
		stop: func() error { return nil },
		close: func() error {
			if n := g.Errors.Load(); n > 0 {
				return fmt.Errorf("%d of %d requests failed, the first: %w", n, n+g.Requests.Load(), g.First())
			}
			return nil
		},
	}, nil)
}

// allIdle runs a generator of idle connections until each has made its request.
func allIdle(g *webpeer.Load, conns int) error {
	for begin := time.Now(); g.Requests.Load() < uint64(conns); {
		if err := g.Run(webStep); err != nil {
			return err
		}
		if g.Errors.Load() > 0 {
			return g.First()
		}
		if time.Since(begin) > foreignReady {
			return fmt.Errorf("%d of %d connections in %v", g.Requests.Load(), conns, foreignReady)
		}
	}
	return nil
}

// load returns what the flags say of a generator.
func (o roleOptions) load() (lo webpeer.LoadOptions, err error) {
	lo = webpeer.LoadOptions{
		HTTP2: o.web.HTTP2, Op: o.op, Conns: o.conns, Streams: o.web.Streams, PerConn: o.web.PerConn, Size: o.size,
		Paths: o.web.Paths, Coding: o.web.Coding, Rate: o.rate,
	}
	if lo.To, err = netip.ParseAddrPort(o.stream.To); err != nil || o.web.Cert == "" {
		return lo, err
	}
	text, err := os.ReadFile(o.web.Cert)
	if err != nil {
		return lo, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return lo, errors.New("no certificate in " + o.web.Cert)
	}
	lo.TLS, lo.Cert = true, block.Bytes
	return lo, nil
}

// saturation returns how many requests are answered in a second at most, over connections that stay open to the end.
func saturation(lo webpeer.LoadOptions, d time.Duration) (rate int, err error) {
	lo.Rate = 0
	g, err := webpeer.NewLoad(lo)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	var half uint64 // requests until halfway
	var halfway time.Duration
	for begin := time.Now(); ; {
		if err := g.Run(webStep); err != nil {
			return 0, err
		}
		switch took := time.Since(begin); { // the first half warms up
		case took > d:
			if g.Errors.Load() > 0 {
				return 0, g.First()
			}
			return int(float64(g.Requests.Load()-half) / (took - halfway).Seconds()), nil
		case took < d/2:
			half, halfway = g.Requests.Load(), took // the process may stand still between two looks
		}
	}
}
