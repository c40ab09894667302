package controlsocket

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
)

const dialTimeout = 5 * time.Second

// Client sends requests to the program behind a control socket. Its methods may be called from any goroutine.
// A request that the program rejects is an *Error.
type Client struct {
	socket string
	server Server
	http   http.Client
}

// Server holds the parts of a Client's error messages.
type Server struct {
	NotRunning error  // where no process listens on the socket
	Start      string // the remedy for NotRunning
	User       string // the program whose user may connect
}

// NewClient returns a client of the socket at a path. Each request connects anew.
func NewClient(socket string, s Server) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, server: s, http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Socket returns the path of the socket.
func (c *Client) Socket() string { return c.socket }

// Call sends body, and decodes the answer into result unless that is nil.
func (c *Client) Call(ctx context.Context, method, path string, body, result any) error {
	resp, err := c.Do(ctx, method, path, body)
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

// Do sends body unless it is nil, and returns an answer with status 200; the caller closes its body.
func (c *Client) Do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://control"+path, bytes.NewReader(text))
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

// explain adds the cause and a remedy to an error of the socket.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%s: %w (%s)", c.socket, c.server.NotRunning, c.server.Start)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: permission denied (be root, or the user that %s runs as)", c.socket, c.server.User)
	}
	return fmt.Errorf("%s: %w", c.socket, err)
}
