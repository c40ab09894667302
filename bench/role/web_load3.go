package role

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"

	quicgo "github.com/quic-go/quic-go"
	quicgoh3 "github.com/quic-go/quic-go/http3"

	"github.com/millrace/millrace/bench/webpeer"
)

// openWebLoad3 is the generator of suite gateway for HTTP/3 towards -to: quic-go's client, since none of ours has no goroutines.
// -conns connections make -streams requests at a time each.
func openWebLoad3(o roleOptions) (roleWork, error) {
	runtime.GOMAXPROCS(1)
	lo, err := o.load()
	if err != nil {
		return roleWork{}, err
	}
	g := &load3{size: lo.Size, ctx: context.Background()}
	ctx, cancel := context.WithCancel(g.ctx)
	g.ctx = ctx
	for range lo.Conns {
		g.connect(lo)
	}
	return profiled(o.profile, roleWork{
		version: buildVersions(),
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{"requests": g.requests.Load(), "bytes": g.bytes.Load()}, nil
		},
		stop: func() error {
			cancel()
			g.all.Wait()
			for _, t := range g.conns {
				_ = t.Close()
			}
			if err := g.failed.Load(); err != nil {
				return *err
			}
			return nil
		},
	}, nil)
}

type load3 struct {
	size            int
	ctx             context.Context
	conns           []*quicgoh3.Transport
	all             sync.WaitGroup
	requests, bytes atomic.Uint64
	failed          atomic.Pointer[error] // the first error; its goroutine has ended
}

// connect opens a connection and makes requests on it.
func (g *load3) connect(lo webpeer.LoadOptions) {
	t := &quicgoh3.Transport{
		DisableCompression: true,
		TLSClientConfig: &tls.Config{
			ServerName: "bench.example", InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519},
		},
		QUICConfig: &quicgo.Config{InitialStreamReceiveWindow: 4 << 20, InitialConnectionReceiveWindow: 32 << 20},
	}
	g.conns = append(g.conns, t)
	url := "https://" + lo.To.String() + webpeer.BytesPath(lo.Size)
	for range lo.Streams {
		g.all.Go(func() {
			buf := make([]byte, 64<<10)
			for g.ctx.Err() == nil {
				if err := g.request(t, url, buf); err != nil {
					if g.ctx.Err() == nil {
						g.failed.CompareAndSwap(nil, &err)
					}
					return
				}
			}
		})
	}
}

// request makes one and validates the response.
func (g *load3) request(t *quicgoh3.Transport, url string, buf []byte) error {
	req, err := http.NewRequestWithContext(g.ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Host = "bench.example"
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	at := 0
	for {
		n, err := resp.Body.Read(buf)
		if cerr := webpeer.CheckContent(at, g.size, buf[:n]); cerr != nil {
			return cerr
		}
		at += n
		g.bytes.Add(uint64(n))
		if err == io.EOF && at == g.size {
			g.requests.Add(1)
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d bytes of %d: %w", at, g.size, err)
		}
	}
}
