package admin

import (
	"bytes"
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

	"github.com/millrace/millrace/gateway"
)

// ErrNotRunning is that no gateway listens on the socket.
var ErrNotRunning = errors.New("no gateway is running there")

// Client speaks to the gateway behind a socket. Its methods may be called from any goroutine. What
// the gateway refuses is an *Error.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the gateway at the path socket. Nothing is opened yet.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status returns a picture of the gateway.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Reload has the gateway read its configuration file again. An *Error with Code 422 shows the mistakes.
func (c *Client) Reload(ctx context.Context) error { return c.post(ctx, "/v1/reload", nil) }

// Stop ends the gateway.
func (c *Client) Stop(ctx context.Context) error { return c.post(ctx, "/v1/stop", nil) }

// Announce has the gateway announce its addresses by gratuitous ARP and unsolicited neighbour
// advertisements.
func (c *Client) Announce(ctx context.Context) error { return c.post(ctx, "/v1/announce", nil) }

// Drain has a backend take no new connections.
func (c *Client) Drain(ctx context.Context, d Drain) error { return c.post(ctx, "/v1/drain", d) }

// Undrain undoes Drain.
func (c *Client) Undrain(ctx context.Context, t Target) error { return c.post(ctx, "/v1/undrain", t) }

// SetWeight gives a backend another weight, until it is given back the one of the configuration.
func (c *Client) SetWeight(ctx context.Context, w Weight) error { return c.post(ctx, "/v1/weight", w) }

// Connections calls yield with each connection that the query chooses, until it returns false.
func (c *Client) Connections(ctx context.Context, q Query, yield func(gateway.Connection) bool) error {
	resp, err := c.do(ctx, http.MethodGet, "/v1/connections?"+q.Values().Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	for {
		var one struct {
			gateway.Connection
			Error
		}
		switch err := d.Decode(&one); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", c.socket, err)
		case one.Message != "": // the answer had begun when it went wrong
			return &Error{Message: one.Message, Code: http.StatusInternalServerError}
		case !yield(one.Connection):
			return nil
		}
	}
}

func (c *Client) post(ctx context.Context, path string, body any) error {
	return c.call(ctx, http.MethodPost, path, body, nil)
}

// call sends body and stores the answer in result, if there is to be one.
func (c *Client) call(ctx context.Context, method, path string, body, result any) error {
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if result == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(result); err != nil {
		return fmt.Errorf("%s: %w", c.socket, err)
	}
	return nil
}

// do returns an answer with status 200; the caller closes its body.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://gateway"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	e := &Error{Code: resp.StatusCode}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(e); err != nil || e.Message == "" {
		e.Message = resp.Status
	}
	return nil, e
}

// explain says what an error of the socket means.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: %w (start one, or name the socket of its configuration with --socket)", c.socket, ErrNotRunning)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: permission denied (be root, or the user that the gateway runs as)", c.socket)
	}
	return fmt.Errorf("%s: %w", c.socket, err)
}
