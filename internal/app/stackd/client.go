package stackd

import (
	"context"
	"errors"
	"net/http"

	"github.com/millrace/millrace/internal/controlsocket"
)

// ErrNotRunning is that no host listens on the socket.
var ErrNotRunning = errors.New("no stack is running there")

// Client asks the host behind a control socket. Its methods may be called from any goroutine. What the host rejects is
// an *Error.
type Client struct{ control *controlsocket.Client }

// NewClient returns a client of the host at the path socket. Each request connects anew.
func NewClient(socket string) *Client {
	return &Client{controlsocket.NewClient(socket, controlsocket.Server{
		NotRunning: ErrNotRunning, User: "the stack",
		Start: "start one with `millrace stack up`, or name its socket with --socket or $MILLRACE_SOCKET",
	})}
}

// Addrs returns the addresses of the host.
func (c *Client) Addrs(ctx context.Context) (v []AddrReport, err error) {
	return v, c.control.Call(ctx, http.MethodGet, "/v1/addr", nil, &v)
}

// Routes returns its routes.
func (c *Client) Routes(ctx context.Context) (v []RouteReport, err error) {
	return v, c.control.Call(ctx, http.MethodGet, "/v1/route", nil, &v)
}

// Neighbors returns its neighbour table.
func (c *Client) Neighbors(ctx context.Context) (v []NeighReport, err error) {
	return v, c.control.Call(ctx, http.MethodGet, "/v1/neigh", nil, &v)
}

// Sockets returns the sockets that q chooses.
func (c *Client) Sockets(ctx context.Context, q Query) (v Sockets, err error) {
	return v, c.control.Call(ctx, http.MethodGet, "/v1/sockets?"+q.Values().Encode(), nil, &v)
}

// Stats returns the counters.
func (c *Client) Stats(ctx context.Context) (v Stats, err error) {
	return v, c.control.Call(ctx, http.MethodGet, "/v1/stats", nil, &v)
}

// Reload makes the host read its configuration file again.
func (c *Client) Reload(ctx context.Context) error {
	var v struct{}
	return c.control.Call(ctx, http.MethodPost, "/v1/reload", nil, &v)
}

// Stop ends the host, and returns when its process has ended, or ctx has.
func (c *Client) Stop(ctx context.Context) error {
	var v struct{}
	of := c.control.Process(ctx)
	defer of.Close()
	if err := c.control.Call(ctx, http.MethodPost, "/v1/stop", nil, &v); err != nil {
		return err
	}
	return of.Wait(ctx)
}
