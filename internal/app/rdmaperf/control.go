package rdmaperf

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/millrace/millrace/internal/controlsocket"
	"github.com/millrace/millrace/rdma"
)

// DefaultSocket is the control socket of a server.
const DefaultSocket = "/run/millrace/rdma.sock"

// Errors of the control socket.
var (
	ErrNotRunning = errors.New("no RDMA device is served there")
	errInUse      = errors.New("an RDMA device is served there already: name another path with --socket")
)

// ServeControl answers the requests of a control socket until ctx ends.
func ServeControl(ctx context.Context, path string, c *rdma.Context, log *slog.Logger) error {
	l, err := controlsocket.Listen(path, errInUse)
	if err != nil {
		return err
	}
	commands := &controlsocket.Commands{Log: log, Name: "rdma", Code: func(error) int { return http.StatusInternalServerError }}
	commands.Get("/v1/report", func(*http.Request) (any, error) { return c.Report(), nil })
	controlsocket.Serve(ctx, l, commands, log, "rdma")
	return nil
}

// Report returns the report of the server behind a control socket.
func Report(ctx context.Context, path string) (r rdma.Report, err error) {
	c := controlsocket.NewClient(path, controlsocket.Server{
		NotRunning: ErrNotRunning, User: "the server", Start: "start one with `millrace rdma serve`, or name its socket with --socket or $MILLRACE_SOCKET",
	})
	return r, c.Call(ctx, http.MethodGet, "/v1/report", nil, &r)
}
