// Package controlsocket is the control socket of a daemon: a Unix socket with an HTTP server whose bodies are JSON,
// and the client of the commands. gateway/admin and internal/app/stackd define the requests.
package controlsocket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Error is the answer to a rejected request.
type Error struct {
	Message string `json:"error"`
	Code    int    `json:"-"` // HTTP status
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Listen creates the socket at path, with mode 0600, and its folder. It replaces a socket that a killed process
// has left. If a process listens there, the error wraps inUse.
func Listen(path string, inUse error) (*Listener, error) {
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := awaitEnd(path); err == nil {
		return nil, fmt.Errorf("%s: %w", path, inUse)
	} else if info, e := os.Lstat(path); errors.Is(err, syscall.ECONNREFUSED) && e == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w (it belongs to another user or is no socket: be that user, or name another path)", err)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return NewListener(l)
}

// endLimit is the time that Listen waits for a process that listens there: one that is stopping gives the socket up
// at once, but after the answer.
const endLimit = 500 * time.Millisecond

// awaitEnd returns why no process listens at path, nil if one still does after endLimit.
func awaitEnd(path string) error {
	for end := time.Now().Add(endLimit); ; time.Sleep(endLimit / 20) {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			return err
		}
		c.Close()
		if time.Now().After(end) {
			return nil
		}
	}
}

// maxRequests is the number of requests of a control socket that are worked on at once: each may render a whole status.
const maxRequests = 16

// Serve answers requests until ctx ends, and waits a second for those in progress. name is the message of
// log records.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger, name string) {
	srv := NewServer(h, maxRequests, log)
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		late, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(late) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(LimitConns(l))
	if stop() {
		log.Error(name, "error", err.Error())
		return
	}
	<-done
}

// Reply answers with v.
func Reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error is the client's absence
}

// ReplyError answers with an Error.
func ReplyError(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(Error{Message: message})
}
