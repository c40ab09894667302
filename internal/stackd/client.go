package stackd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"
)

// ErrNotRunning is that no host listens on the socket.
var ErrNotRunning = errors.New("no stack is running there")

// Client asks the host behind a control socket. Its methods may be called from any goroutine. What the host refuses is
// an *Error.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the host at the path socket. Nothing is opened yet.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Addrs returns the addresses of the host.
func (c *Client) Addrs(ctx context.Context) (v []AddrReport, err error) {
	return v, c.call(ctx, http.MethodGet, "/v1/addr", &v)
}

// Routes returns its routes.
func (c *Client) Routes(ctx context.Context) (v []RouteReport, err error) {
	return v, c.call(ctx, http.MethodGet, "/v1/route", &v)
}

// Neighbors returns its neighbour table.
func (c *Client) Neighbors(ctx context.Context) (v []NeighReport, err error) {
	return v, c.call(ctx, http.MethodGet, "/v1/neigh", &v)
}

// Sockets returns the sockets that q chooses.
func (c *Client) Sockets(ctx context.Context, q Query) (v Sockets, err error) {
	return v, c.call(ctx, http.MethodGet, "/v1/sockets?"+q.Values().Encode(), &v)
}

// Stats returns the counters.
func (c *Client) Stats(ctx context.Context) (v Stats, err error) {
	return v, c.call(ctx, http.MethodGet, "/v1/stats", &v)
}

// Stop ends the host.
func (c *Client) Stop(ctx context.Context) error {
	var v struct{}
	return c.call(ctx, http.MethodPost, "/v1/stop", &v)
}

// call stores the answer in result.
func (c *Client) call(ctx context.Context, method, path string, result any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://stack"+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		e := &Error{Code: resp.StatusCode}
		if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(e); err != nil || e.Message == "" {
			e.Message = resp.Status
		}
		return e
	}
	if err := json.NewDecoder(resp.Body).Decode(result); err != nil {
		return fmt.Errorf("%s: %w", c.socket, err)
	}
	return nil
}

// explain says what an error of the socket means.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: %w (start one with `millrace stack up`, or name the socket of the one that runs with --socket)", c.socket, ErrNotRunning)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: permission denied (be root, or the user that the stack runs as)", c.socket)
	}
	return fmt.Errorf("%s: %w", c.socket, err)
}
