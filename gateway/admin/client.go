package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/millrace/millrace/gateway/defence"
	"github.com/millrace/millrace/internal/controlsocket"
	l4control "github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/inspection"
	"github.com/millrace/millrace/l4/rolelink"
	l7control "github.com/millrace/millrace/l7/control"
)

// ErrNotRunning reports that no gateway listens on the socket.
var ErrNotRunning = errors.New("no gateway is running there")

// Client sends requests to the gateway behind a socket. Its methods may be called from any goroutine. A request
// that the gateway rejects is an *Error.
type Client struct{ control *controlsocket.Client }

// NewClient returns a client of the gateway at the path socket. Each request connects anew.
func NewClient(socket string) *Client {
	return &Client{controlsocket.NewClient(socket, controlsocket.Server{
		NotRunning: ErrNotRunning, User: "the gateway",
		Start: "start one, or name the socket of its configuration with --socket or $MILLRACE_SOCKET",
	})}
}

// Status returns a picture of the gateway, with what is chosen of its services. An *Error with Code 404 means that there is
// no such service or backend.
func (c *Client) Status(ctx context.Context, sel l4control.Selection) (s Status, err error) {
	return s, c.control.Call(ctx, http.MethodGet, "/v1/status?"+SelectionValues(&sel).Encode(), nil, &s)
}

// StatusJSON is Status as the gateway sends it: of thousands of backends decoding takes longer than all else.
func (c *Client) StatusJSON(ctx context.Context, sel l4control.Selection) (reply json.RawMessage, err error) {
	err = c.control.Call(ctx, http.MethodGet, "/v1/status?"+SelectionValues(&sel).Encode(), nil, &reply)
	return reply, err
}

// Top has the gateway count requests for a time, and returns the first rows of each kind. An *Error with Code 503 means that it
// counts for as many others as it may.
func (c *Client) Top(ctx context.Context, over time.Duration, rows int) (t Top, err error) {
	q := url.Values{"interval": {over.String()}, "rows": {strconv.Itoa(rows)}}
	return t, c.control.Call(ctx, http.MethodGet, "/v1/top?"+q.Encode(), nil, &t)
}

// ServiceNames returns the names of the services.
func (c *Client) ServiceNames(ctx context.Context) ([]string, error) { return c.names(ctx, "") }

// BackendNames returns the names of the backends of a service, or of all services for "".
func (c *Client) BackendNames(ctx context.Context, service string) ([]string, error) {
	return c.names(ctx, "?"+url.Values{"service": {service}}.Encode())
}

func (c *Client) names(ctx context.Context, query string) ([]string, error) {
	var n Names
	err := c.control.Call(ctx, http.MethodGet, "/v1/names"+query, nil, &n)
	return n.Names, err
}

// Reload makes the gateway read its configuration file again, or with dryRun only say what that would change. An *Error
// with Code 422 shows the errors of the file.
func (c *Client) Reload(ctx context.Context, dryRun bool) (changes Changes, err error) {
	path := "/v1/reload"
	if dryRun {
		path += "?dry_run=true"
	}
	return changes, c.control.Call(ctx, http.MethodPost, path, nil, &changes)
}

// Upgrade has another process replace the gateway's, and returns when that serves. An *Error with Code 422 shows the errors of the file.
func (c *Client) Upgrade(ctx context.Context, u Upgrade) (res Upgraded, err error) {
	return res, c.control.Call(ctx, http.MethodPost, "/v1/upgrade", u, &res)
}

// Rules returns the policies of inspection, and at most so many rules that have matched.
func (c *Client) Rules(ctx context.Context, limit int) (s inspection.Status, err error) {
	return s, c.control.Call(ctx, http.MethodGet, fmt.Sprintf("/v1/rules?limit=%d", limit), nil, &s)
}

// Stop ends the gateway, and returns when its process has ended, or ctx has. That of another PID namespace may go on for a moment.
func (c *Client) Stop(ctx context.Context) error {
	of := c.control.Process(ctx)
	defer of.Close()
	if err := c.post(ctx, "/v1/stop", nil); err != nil {
		return err
	}
	return of.Wait(ctx)
}

// Announce makes the gateway announce its addresses by gratuitous ARP and unsolicited neighbour
// advertisements.
func (c *Client) Announce(ctx context.Context) error { return c.post(ctx, "/v1/announce", nil) }

// SetRole has the gateway of a pair be "active" or "standby", and returns its role then. An *Error with Code 409 means that it has
// none, or that the other one is not ready, and with Code 504 that that has not answered in time.
func (c *Client) SetRole(ctx context.Context, state string) (st rolelink.Status, err error) {
	return st, c.control.Call(ctx, http.MethodPost, "/v1/role", Role{state}, &st)
}

// Drain sends a backend no new connections.
func (c *Client) Drain(ctx context.Context, d Drain) error { return c.post(ctx, "/v1/drain", d) }

// Undrain undoes Drain.
func (c *Client) Undrain(ctx context.Context, t Target) error { return c.post(ctx, "/v1/undrain", t) }

// SetWeight sets the weight of a backend; nil restores that of the configuration.
func (c *Client) SetWeight(ctx context.Context, w Weight) error { return c.post(ctx, "/v1/weight", w) }

// Defence returns the verdicts of the defence. An *Error with Code 404 means that the gateway has none.
func (c *Client) Defence(ctx context.Context) (st defence.Status, err error) {
	return st, c.control.Call(ctx, http.MethodGet, "/v1/defence", nil, &st)
}

// AddVerdict has the defence drop or limit a source.
func (c *Client) AddVerdict(ctx context.Context, v DefenceVerdict) error {
	return c.post(ctx, "/v1/defence/add", v)
}

// RemoveVerdict takes a verdict of the defence back.
func (c *Client) RemoveVerdict(ctx context.Context, v DefenceSource) error {
	return c.post(ctx, "/v1/defence/remove", v)
}

// Caches returns the state of the caches of listeners.
func (c *Client) Caches(ctx context.Context) (s l7control.CacheStatuses, err error) {
	return s, c.control.Call(ctx, http.MethodGet, "/v1/cache", nil, &s)
}

// CacheObjects returns stored responses whose URL begins with a prefix, at most so many, of a cache or of all for "".
func (c *Client) CacheObjects(ctx context.Context, name, prefix string, limit int) (s l7control.CacheList, err error) {
	q := url.Values{"cache": {name}, "prefix": {prefix}, "limit": {strconv.Itoa(limit)}}
	return s, c.control.Call(ctx, http.MethodGet, "/v1/cache/objects?"+q.Encode(), nil, &s)
}

// PurgeCache removes stored responses. An *Error with Code 404 means that there is no such cache.
func (c *Client) PurgeCache(ctx context.Context, p CachePurge) (n CachePurged, err error) {
	return n, c.control.Call(ctx, http.MethodPost, "/v1/cache/purge", p, &n)
}

// Route returns the way of a request through the configuration in use. An *Error with Code 400 means that it is no request.
func (c *Client) Route(ctx context.Context, q l7control.Query) (*l7control.Explanation, error) {
	var e l7control.Explanation
	if err := c.control.Call(ctx, http.MethodPost, "/v1/route", q, &e); err != nil {
		return nil, err
	}
	return &e, nil
}

// Connections calls yield with each connection that the query chooses, until it returns false.
func (c *Client) Connections(ctx context.Context, q Query, yield func(Connection) bool) error {
	resp, err := c.control.Do(ctx, http.MethodGet, "/v1/connections?"+q.Values().Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	for {
		var one struct {
			Connection
			Error
		}
		switch err := d.Decode(&one); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", c.control.Socket(), err)
		case one.Message != "": // the answer had begun when it went wrong
			return &Error{Message: one.Message, Code: http.StatusInternalServerError}
		case !yield(one.Connection):
			return nil
		}
	}
}

func (c *Client) post(ctx context.Context, path string, body any) error {
	return c.control.Call(ctx, http.MethodPost, path, body, nil)
}
