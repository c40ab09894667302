package stackd

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

// openControl takes the control socket, so that a start that cannot have it touches no interface. A socket that
// nobody listens on is what a killed process has left.
func (d *Daemon) openControl() error {
	path := d.cfg.Control.Socket
	if path == "" {
		return nil
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("control.socket: %w", err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return fmt.Errorf("control.socket: something is running at %s (give this one another with --socket or control.socket, or \"\" for none)", path)
	} else if info, e := os.Lstat(path); errors.Is(err, syscall.ECONNREFUSED) && e == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("control.socket: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("control.socket: %w (it belongs to another user or is no socket: be that user, or name another path)", err)
	}
	if err != nil {
		return fmt.Errorf("control.socket: %w", err)
	}
	d.control = l
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("control.socket: %w", err)
	}
	return nil
}

// serveControl answers requests until ctx ends, and those under way to their end, if that comes soon.
func (d *Daemon) serveControl(ctx context.Context) {
	srv := &http.Server{
		Handler: d.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(d.opt.Log.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		late, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(late) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(d.control)
	if stop() {
		d.opt.Log.Error("control", "error", err.Error())
		return
	}
	<-done
}

// handler serves what report.go describes.
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	show := func(path string, what func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { reply(w, what()) })
	}
	show("/v1/addr", func() any { return d.Addrs() })
	show("/v1/route", func() any { return d.Routes() })
	show("/v1/neigh", func() any { return d.Neighbors() })
	show("/v1/stats", func() any { return d.Stats() })
	mux.HandleFunc("GET /v1/sockets", func(w http.ResponseWriter, r *http.Request) {
		q, err := ParseQuery(r.URL.Query())
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		reply(w, d.Sockets(q))
	})
	mux.HandleFunc("POST /v1/stop", func(w http.ResponseWriter, _ *http.Request) {
		d.opt.Log.Info("control", "command", "stop")
		d.Stop()
		reply(w, struct{}{})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, fmt.Sprintf("no %s %s here", r.Method, r.URL.Path))
	})
	return mux
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error is the client's absence
}

func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(Error{Message: message})
}
